// The ordered queue of collectives of a rank, and their counters.
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

// The counts of a stage of dispatch over all calls. Bytes are to and from other ranks only.
struct StageCount {
  std::string stage;
  uint64_t calls = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t nanoseconds = 0;
};

class DeviceCommunicator;

enum class DeviceCollectives : int {
  kAuto = 0,  // NCCL where each rank has its own GPU, else through the host
  kNccl = 1,
  kHost = 2,  // through the host's memory
};

// How ranks exchange data in the memory of GPUs: gpu/comm/ranks.h.
struct DeviceRanks {
  DeviceCollectives wanted = DeviceCollectives::kAuto;
  std::string nccl_library;  // path, if it is not found by its own name
  double timeout_seconds = 300.0;
  std::atomic<const char*> chosen{""};               // by its name; empty: none yet
  std::shared_ptr<DeviceCommunicator> communicator;  // used on the queue
};

// A separate thread runs the queue's work in order. So ranks that put the same work on their queues
// in the same order never deadlock.
class Collectives {
 public:
  using Work = std::function<void(Communicator&)>;

  explicit Collectives(std::unique_ptr<Communicator> communicator);
  // Waits for work in flight. Work that has not begun does not run, and its `wait` fails with
  // Aborted.
  ~Collectives();

  int rank() const;
  int size() const;

  // Puts work on the queue. what: Communicator::begin. Call `wait` for the ticket exactly once.
  // Work that throws anything but an AgreedError fails all ranks: else they would wait for it.
  uint64_t submit(std::string what, Work work);
  // Returns when that work is done; throws its exception. Not from work on the queue.
  void wait(uint64_t ticket);
  // As wait, for callers that must not block. Calls `done` once, in the queue's thread or at once,
  // with the work's exception or null. It must not throw or wait.
  void when_done(uint64_t ticket, std::function<void(std::exception_ptr)> done);
  // Submits and waits.
  void run(std::string what, Work work);

  // Communicator::fail.
  void fail(Code code, const std::string& message);
  // The same; then throws the first rank's failure: "rank 1: <message>". Not from work on the
  // queue.
  [[noreturn]] void fail_and_throw(Code code, const std::string& message);

  DeviceRanks& device();

  // Adds a call to the counts of a stage. From any thread.
  void count(const char* stage, uint64_t bytes_sent, uint64_t bytes_received, uint64_t nanoseconds);
  // In the order of their first calls.
  std::vector<StageCount> counts() const;

 private:
  struct State;
  // Shared with waiting threads.
  std::shared_ptr<State> state_;
};

// The collectives by name, for tables and ops, as tables are (table/registry.h). Fails with
// AlreadyExists, NotFound. Dropping an unknown name does nothing.
void add_collectives(const std::string& name, std::shared_ptr<Collectives> collectives);
std::shared_ptr<Collectives> find_collectives(const std::string& name);
void drop_collectives(const std::string& name);

}  // namespace hotrow
