#include "core/redis/circuit_breaker.h"

#include <algorithm>
#include <random>

namespace hotrow {
namespace {

// A random half to whole of a pause, so that servers do not probe in step.
std::chrono::nanoseconds jittered(std::chrono::nanoseconds pause) {
  thread_local std::minstd_rand random(std::random_device{}());
  return pause / 2 + pause / 2 * static_cast<int64_t>(random() % 1024) / 1024;
}

}  // namespace

CircuitBreaker::Pass CircuitBreaker::admit(Time now) {
  if (untroubled_.load(std::memory_order_acquire)) return Pass::kAsk;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kClosed) return Pass::kAsk;
  if (state_ == State::kHalfOpen || now < open_until_) return Pass::kRefused;
  state_ = State::kHalfOpen;
  return Pass::kProbe;
}

void CircuitBreaker::succeed() {
  if (untroubled_.load(std::memory_order_acquire)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  state_ = State::kClosed;
  failures_ = 0;
  pause_ = std::chrono::milliseconds(0);
  untroubled_.store(true, std::memory_order_release);
}

void CircuitBreaker::fail(Time now, Code code, const std::string& message, bool certain) {
  const std::lock_guard<std::mutex> lock(mutex_);
  untroubled_.store(false, std::memory_order_release);
  code_ = code;
  message_ = message;
  if (failures_++ == 0) first_failure_ = now;
  if (state_ == State::kOpen) return;  // the failed call began before the breaker opened
  if (certain || state_ == State::kHalfOpen || failures_ >= options_.failures ||
      now - first_failure_ >= options_.row_length) {
    open(now);
  }
}

void CircuitBreaker::open(Time now) {
  pause_ = std::clamp(2 * pause_, options_.first_pause, options_.longest_pause);
  open_until_ = now + jittered(pause_);
  state_ = State::kOpen;
  openings_.fetch_add(1, std::memory_order_relaxed);
}

void CircuitBreaker::give_up() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == State::kHalfOpen) state_ = State::kOpen;  // its pause is over: the next call probes
}

CircuitBreaker::State CircuitBreaker::state() const {
  if (untroubled_.load(std::memory_order_acquire)) return State::kClosed;
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

Error CircuitBreaker::last_failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {code_, message_};
}

}  // namespace hotrow
