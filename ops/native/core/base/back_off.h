// How long to leave the processor to others between two looks at what must come.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace hotrow {

// What comes soon is seen at once; who waits long lets others work: a machine may have more ranks
// than cores, and each has threads that compute.
class BackOff {
 public:
  using Clock = std::chrono::steady_clock;

  // Since the wait began, as of the last pause.
  Clock::duration waited() const { return waited_; }

  // Whether the next pause gives the processor away for a while.
  bool sleeps() const { return waited_ >= kYield; }

  void pause() {
    waited_ = Clock::now() - begin_;
    if (waited_ < kSpin) return;
    if (!sleeps()) {
      ::sched_yield();
      return;
    }
    // By a part of the time that it has taken so far, which is what it costs at most.
    std::this_thread::sleep_for(std::clamp<Clock::duration>(waited_ / 16, kShortest, kLongest));
  }

 private:
  static constexpr std::chrono::microseconds kSpin{5}, kYield{100};
  static constexpr std::chrono::microseconds kShortest{10}, kLongest{500};
  const Clock::time_point begin_ = Clock::now();
  Clock::duration waited_{};
};

}  // namespace hotrow
