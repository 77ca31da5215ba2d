// The ordered queue of collectives of a rank, and what is counted of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/communicator.h"

namespace hotrow {

// Of a stage of dispatch, of all calls so far. Bytes to and from other ranks, not to oneself.
struct StageCount {
  std::string stage;
  uint64_t calls = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t nanoseconds = 0;
};

// One thread of its own runs what is put on the queue, one after the other, so two ranks that put
// the same work on their queues in the same order never wait for each other in a circle.
class Collectives {
 public:
  using Work = std::function<void(Communicator&)>;

  explicit Collectives(std::unique_ptr<Communicator> communicator);
  // Waits for what is under way; what has not begun does not run and its `wait` fails.
  ~Collectives();

  int rank() const;
  int size() const;

  // Puts work on the queue. what: for messages. The ticket must be waited for, once.
  uint64_t submit(std::string what, Work work);
  // Returns when that work is done; throws what it threw.
  void wait(uint64_t ticket);
  // Both.
  void run(std::string what, Work work);

  // Communicator::fail.
  void fail(Code code, const std::string& message);

  // Adds a call to the counts of a stage. From any thread.
  void count(const char* stage, uint64_t bytes_sent, uint64_t bytes_received, uint64_t nanoseconds);
  // In the order of their first calls.
  std::vector<StageCount> counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// By name, for tables and ops: as tables (registry.h). Fails with AlreadyExists, NotFound.
void add_collectives(const std::string& name, std::shared_ptr<Collectives> collectives);
std::shared_ptr<Collectives> find_collectives(const std::string& name);
void drop_collectives(const std::string& name);

}  // namespace hotrow
