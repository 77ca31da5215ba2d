// The right to write to an LMDB environment, with a bounded wait for it.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

namespace hotrow {

// Held by one thread of all processes at a time. LMDB's own lock waits for ever, for a process that
// is stopped, too; whoever has a turn does not wait for it. A process that ends gives it back.
class WriteTurn {
 public:
  // threads: of the environment. file: its data.mdb. what: for messages. Fails with Unavailable
  // after `patience`, and names who writes.
  WriteTurn(std::timed_mutex& threads, int file, std::chrono::milliseconds patience,
            const std::string& what);
  ~WriteTurn();
  WriteTurn(const WriteTurn&) = delete;
  WriteTurn& operator=(const WriteTurn&) = delete;

 private:
  std::unique_lock<std::timed_mutex> threads_;
  int file_;
};

}  // namespace hotrow
