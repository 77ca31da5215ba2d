// Long work takes turns: a bounded number at a time, the rest waits.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "base/event.h"

namespace hotrow_server {

class Turns {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Holds a turn while it lives; null: the wait was too long.
  using Turn = std::shared_ptr<void>;
  using Work = std::function<void(Turn)>;

  // most: turns at a time. patience: longest wait. enqueue: lets a worker handle an event.
  Turns(int most, std::chrono::milliseconds patience, std::function<void(Event*)> enqueue)
      : free_(most), patience_(patience), enqueue_(std::move(enqueue)) {}

  // Calls work at once, or later from a worker.
  void take(Work work);
  // Ends waits that are too long.
  void check_time(Time now);

 private:
  class Later;
  struct Waiting {
    Work work;
    Time until;
  };

  Turn turn();
  void give_back();

  std::mutex mutex_;
  int free_;
  std::deque<Waiting> waiting_;  // the first has waited the longest
  const std::chrono::milliseconds patience_;
  const std::function<void(Event*)> enqueue_;
};

}  // namespace hotrow_server
