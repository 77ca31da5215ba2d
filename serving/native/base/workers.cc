#include "base/workers.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace hotrow_server {
namespace {

// Idle threads beyond this number end.
constexpr int kMostIdle = 64;
// After the events of this many requests without a pause, another thread helps.
constexpr int kBusyRequests = 4;
// Another thread also helps when a thread computes for kBusyShare of the time over this many
// events: gRPC polls one connection at a time, and reports no event while other connections have
// some.
constexpr int kSampledEvents = 32;
constexpr double kBusyShare = 0.85;
// A helping thread that waited this often, and was never busy in between, stops helping.
constexpr int kIdleWaits = 16;
// So does a thread that waits longer than this.
constexpr auto kHelps = std::chrono::milliseconds(100);

// The interval between checks of threads; also the longest time of a brief event.
constexpr auto kWatch = std::chrono::milliseconds(20);

using Steady = std::chrono::steady_clock;

// The CPU load of this thread.
class Load {
 public:
  // The share of the time since the last call.
  double sample() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    const auto used = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
    const auto at = Steady::now();
    const double share = std::chrono::duration<double>(used - used_) / (at - at_);
    used_ = used;
    at_ = at;
    return share;
  }

 private:
  std::chrono::nanoseconds used_{0};
  Steady::time_point at_ = Steady::now();
};

}  // namespace

thread_local Workers::Taker* Workers::own_taker_ = nullptr;

Workers::Workers(EventSource* source, int events_per_request)
    : source_(source),
      busy_events_(kBusyRequests * events_per_request),
      most_takers_(static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {
  const std::lock_guard lock(mutex_);
  add_taker();
  std::thread([this] { watch(); }).detach();
}

void Workers::hand_over() {
  if (own_taker_ == nullptr || !own_taker_->in_charge.load(std::memory_order_relaxed)) return;
  Workers* const workers = own_taker_->workers;
  const std::lock_guard lock(workers->mutex_);
  workers->replace(own_taker_);
}

void Workers::replace(Taker* taker) {
  if (!taker->in_charge.exchange(false)) return;
  if (--takers_ == 0) add_taker();
}

void Workers::watch() {
  for (;;) {
    std::this_thread::sleep_for(kWatch);
    const Time now = Steady::now();
    const std::lock_guard lock(mutex_);
    for (Taker* const taker : all_) {
      if (now - taker->since.load(std::memory_order_relaxed) > kWatch) replace(taker);
    }
  }
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
  Taker taker{this};
  own_taker_ = &taker;
  std::list<Taker*>::iterator place;
  {
    const std::lock_guard lock(mutex_);
    place = all_.insert(all_.end(), &taker);
  }
  do {
    take_events(&taker);
  } while (come_back());
  const std::lock_guard lock(mutex_);
  all_.erase(place);
}

void Workers::take_events(Taker* taker) {
  int without_pause = 0, waits = 0;
  Load load;
  load.sample();
  for (int events = 1;; ++events) {
    EventSource::Taken taken{};
    if (!source_->take(std::chrono::milliseconds(0), &taken)) {
      without_pause = 0;
      if (++waits > kIdleWaits && leave()) return;
      while (!source_->take(kHelps, &taken)) {
        if (leave()) return;
      }
    } else {
      ++without_pause;
    }
    const bool sampled = events % kSampledEvents == 0;
    if (without_pause >= busy_events_ || (sampled && load.sample() > kBusyShare)) {
      without_pause = waits = 0;
      const std::lock_guard lock(mutex_);
      if (takers_ < most_takers_) add_taker();
    }
    if (taken.event == nullptr) continue;
    taker->since.store(Steady::now(), std::memory_order_relaxed);
    taker->in_charge = true;
    taken.event->happen(taken.ok);
    if (!taker->in_charge.exchange(false)) return;
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
