// Keeps readers from waiting for a node that does not answer (M. Nygard, Release It!, 2007).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/base/status.h"

namespace hotrow {

// Closed: everybody may ask. Open: nobody, for a while that doubles with every failed probe.
// Half open: one asks for all, the probe. Safe from several threads.
class CircuitBreaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    int failures = 5;                            // in a row open it,
    std::chrono::milliseconds row_length{500};   // or two of them so far apart
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
  // The probe ended and nobody knows how the node is: the next one probes.
  void give_up();

  State state() const;
  // Of the last failure.
  Error last_failure() const;
  uint64_t openings() const { return openings_.load(std::memory_order_relaxed); }

 private:
  void open(Time now);

  const Options options_;
  mutable std::mutex mutex_;
  std::atomic<bool> untroubled_{true};  // closed, and the last call succeeded
  std::atomic<uint64_t> openings_{0};
  State state_ = State::kClosed;
  int failures_ = 0;  // in a row
  Time first_failure_;
  Time open_until_;
  std::chrono::milliseconds pause_{0};
  Code code_ = Code::kOk;
  std::string message_;
};

}  // namespace hotrow
