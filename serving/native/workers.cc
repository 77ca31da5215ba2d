#include "workers.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "event.h"

namespace hotrow_server {
namespace {

// More idle threads than this end.
constexpr int kMostIdle = 64;
// Events without a pause, about four requests, after which another thread helps.
constexpr int kBusyEvents = 12;
// A thread that helps and had to wait so often, never busy in between, helps no more.
constexpr int kIdleWaits = 16;
// Nor does one that waits longer than this.
constexpr auto kHelps = std::chrono::milliseconds(100);

using Clock = std::chrono::system_clock;

// The workers whose event this thread handles, while they depend on it for the next one.
thread_local Workers* depending = nullptr;

}  // namespace

Workers::Workers(grpc::CompletionQueue* queue)
    : queue_(queue),
      most_takers_(static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {
  const std::lock_guard lock(mutex_);
  add_taker();
}

void Workers::hand_over() {
  Workers* const workers = depending;
  if (workers == nullptr) return;
  depending = nullptr;
  const std::lock_guard lock(workers->mutex_);
  if (--workers->takers_ == 0) workers->add_taker();
}

void Workers::add_taker() {
  ++takers_;
  if (idle_ > calls_) {
    ++calls_;
    called_.notify_one();
    return;
  }
  std::thread([this] { work(); }).detach();
}

void Workers::work() {
  do {
    take_events();
  } while (come_back());
}

void Workers::take_events() {
  int without_pause = 0, waits = 0;
  for (;;) {
    void* tag;
    bool ok;
    auto got = queue_->AsyncNext(&tag, &ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
    if (got == grpc::CompletionQueue::TIMEOUT) {
      without_pause = 0;
      if (++waits > kIdleWaits && leave()) return;
      while ((got = queue_->AsyncNext(&tag, &ok, Clock::now() + kHelps)) ==
             grpc::CompletionQueue::TIMEOUT) {
        if (leave()) return;
      }
    } else if (++without_pause >= kBusyEvents) {
      without_pause = waits = 0;
      const std::lock_guard lock(mutex_);
      if (takers_ < most_takers_) add_taker();
    }
    depending = this;
    static_cast<Event*>(tag)->happen(ok);
    if (depending == nullptr) return;
    depending = nullptr;
  }
}

bool Workers::leave() {
  const std::lock_guard lock(mutex_);
  if (takers_ <= 1) return false;
  --takers_;
  return true;
}

bool Workers::come_back() {
  std::unique_lock lock(mutex_);
  if (takers_ == 0) {
    ++takers_;
    return true;
  }
  if (idle_ >= kMostIdle) return false;
  ++idle_;
  called_.wait(lock, [this] { return calls_ > 0; });
  --calls_;
  --idle_;
  return true;
}

}  // namespace hotrow_server
