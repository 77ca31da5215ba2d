// Keeps readers from waiting for a node that does not answer (M. Nygard, Release It!, 2007).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/base/status.h"

namespace hotrow {

// Closed: all calls pass. Open: no call passes, for a pause that doubles with every failed probe.
// Half open: one call passes, the probe. Safe from several threads.
class CircuitBreaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    int failures = 5;                            // consecutive failures open it,
    std::chrono::milliseconds row_length{500};   // or a row of failures that lasts this long
    std::chrono::milliseconds first_pause{100};  // a random half to whole of it
    std::chrono::milliseconds longest_pause{5000};
  };
  enum class State { kClosed, kOpen, kHalfOpen };
  enum class Pass { kAsk, kProbe, kRefused };

  explicit CircuitBreaker(const Options& options) : options_(options) {}

  // A probe is followed by succeed, fail or give_up.
  Pass admit(Time now);
  void succeed();
  // certain: opens at once.
  void fail(Time now, Code code, const std::string& message, bool certain);
  // The probe ended without a result: the next call probes.
  void give_up();

  State state() const;
  // The last failure.
  Error last_failure() const;
  uint64_t openings() const { return openings_.load(std::memory_order_relaxed); }

 private:
  void open(Time now);

  const Options options_;
  mutable std::mutex mutex_;
  std::atomic<bool> untroubled_{true};  // closed, and the last call succeeded
  std::atomic<uint64_t> openings_{0};
  State state_ = State::kClosed;
  int failures_ = 0;  // consecutive
  Time first_failure_;
  Time open_until_;
  std::chrono::milliseconds pause_{0};
  Code code_ = Code::kOk;
  std::string message_;
};

}  // namespace hotrow
