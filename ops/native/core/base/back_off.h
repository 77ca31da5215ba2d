// How long to yield the CPU between two polls.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace hotrow {

// A short wait ends at once; a long wait lets other threads run: a machine may have more ranks than
// cores, and each rank has threads that compute.
class BackOff {
 public:
  using Clock = std::chrono::steady_clock;

  // Time since the wait began, as of the last pause.
  Clock::duration waited() const { return waited_; }

  // Whether the next pause sleeps.
  bool sleeps() const { return waited_ >= kYield; }

  void pause() {
    waited_ = Clock::now() - begin_;
    if (waited_ < kSpin) return;
    if (!sleeps()) {
      ::sched_yield();
      return;
    }
    // Sleeps for a fraction of the time waited so far, which bounds the added delay.
    std::this_thread::sleep_for(std::clamp<Clock::duration>(waited_ / 16, kShortest, kLongest));
  }

 private:
  static constexpr std::chrono::microseconds kSpin{5}, kYield{100};
  static constexpr std::chrono::microseconds kShortest{10}, kLongest{500};
  const Clock::time_point begin_ = Clock::now();
  Clock::duration waited_{};
};

}  // namespace hotrow
