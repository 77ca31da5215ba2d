#include "http/turns.h"

#include <utility>

namespace hotrow_server {

// Work whose turn has come, or does not come.
class Turns::Later final : public Event {
 public:
  Later(Work work, Turn turn) : work_(std::move(work)), turn_(std::move(turn)) {}
  void happen(bool) override {
    work_(std::move(turn_));
    delete this;
  }

 private:
  Work work_;
  Turn turn_;
};

Turns::Turn Turns::turn() {
  return Turn(this, [](void* turns) { static_cast<Turns*>(turns)->give_back(); });
}

void Turns::take(Work work) {
  {
    const std::lock_guard lock(mutex_);
    if (free_ == 0) {
      waiting_.push_back({std::move(work), std::chrono::steady_clock::now() + patience_});
      return;
    }
    --free_;
  }
  work(turn());
}

void Turns::give_back() {
  Work next;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      ++free_;
      return;
    }
    next = std::move(waiting_.front().work);
    waiting_.pop_front();
  }
  enqueue_(new Later(std::move(next), turn()));
}

void Turns::check_time(Time now) {
  const std::lock_guard lock(mutex_);
  while (!waiting_.empty() && waiting_.front().until <= now) {
    enqueue_(new Later(std::move(waiting_.front().work), nullptr));
    waiting_.pop_front();
  }
}

}  // namespace hotrow_server
