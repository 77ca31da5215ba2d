// The ordered queue of collectives of a rank, and what is counted of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/comm/communicator.h"

namespace hotrow {

// Of a stage of dispatch, of all calls so far. Bytes to and from other ranks, not to oneself.
struct StageCount {
  std::string stage;
  uint64_t calls = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t nanoseconds = 0;
};

class DeviceCommunicator;

enum class DeviceCollectives : int {
  kAuto = 0,  // NCCL where each rank has a GPU of its own, else the host's
  kNccl = 1,
  kHost = 2,  // by way of the host's memory
};

// How ranks exchange what is in memory of GPUs: gpu/comm/ranks.h.
struct DeviceRanks {
  DeviceCollectives wanted = DeviceCollectives::kAuto;
  std::string nccl_library;  // path, if it is not found by its own name
  double timeout_seconds = 300.0;
  std::atomic<const char*> chosen{""};               // by its name; empty: none yet
  std::shared_ptr<DeviceCommunicator> communicator;  // used on the queue
};

// One thread of its own runs what is put on the queue, one after the other, so two ranks that put
// the same work on their queues in the same order never wait for each other in a circle.
class Collectives {
 public:
  using Work = std::function<void(Communicator&)>;

  explicit Collectives(std::unique_ptr<Communicator> communicator);
  // Waits for what is in flight; what has not begun does not run and its `wait` fails with Aborted.
  ~Collectives();

  int rank() const;
  int size() const;

  // Puts work on the queue. what: Communicator::begin. The ticket must be waited for, once. Work
  // that throws anything but an AgreedError ends all ranks: they would wait for it.
  uint64_t submit(std::string what, Work work);
  // Returns when that work is done; throws what it threw. Not from work.
  void wait(uint64_t ticket);
  // As wait, for who must not block: `done` is called once, by the queue's thread or at once, with
  // what the work threw, or null. It must not throw or wait.
  void when_done(uint64_t ticket, std::function<void(std::exception_ptr)> done);
  // Both submit and wait.
  void run(std::string what, Work work);

  // Communicator::fail.
  void fail(Code code, const std::string& message);
  // The same; then throws what the first rank failed with: "rank 1: <message>". Not from work.
  [[noreturn]] void fail_and_throw(Code code, const std::string& message);

  DeviceRanks& device();

  // Adds a call to the counts of a stage. From any thread.
  void count(const char* stage, uint64_t bytes_sent, uint64_t bytes_received, uint64_t nanoseconds);
  // In the order of their first calls.
  std::vector<StageCount> counts() const;

 private:
  struct State;
  // Shared with those that wait.
  std::shared_ptr<State> state_;
};

// By name, for tables and ops: as tables (table/registry.h). Fails with AlreadyExists, NotFound.
// Who drops a name that is not there changes nothing.
void add_collectives(const std::string& name, std::shared_ptr<Collectives> collectives);
std::shared_ptr<Collectives> find_collectives(const std::string& name);
void drop_collectives(const std::string& name);

}  // namespace hotrow
