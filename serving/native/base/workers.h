// The threads that handle a source's events.
//
// One thread waits for events and handles them, one after the other, as long as they are brief:
// another thread is woken only when there is work for it, since waking costs more than a small
// model's run. Before long work a thread hands the queue over; while events keep coming without a
// pause, more threads take them. When an event takes longer than expected, a watcher replaces the
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>

#include "base/event.h"

namespace hotrow_server {

class Workers {
 public:
  // Starts the threads. They run until the process ends. events_per_request: about how many of the
  // source's events a request has.
  Workers(EventSource* source, int events_per_request);
  Workers(const Workers&) = delete;

  // Called while an event is handled, before work that may take long or wait. Does nothing in other
  // threads.
  static void hand_over();
  // Whether this is a thread that handles an event.
  static bool is_own_thread() { return own_taker_ != nullptr; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  // A thread that takes events.
  struct Taker {
    Workers* workers;
    // Whether it handles an event that the next events wait for. Only the thread that sets it to
    // false takes the next events: this thread, or a thread that replaces it.
    std::atomic<bool> in_charge{false};
    std::atomic<Time> since{};
  };

  void work();
  // Handles events until this thread should stop waiting for them.
  void take_events(Taker* taker);
  // Whether other threads take the events, so that this thread need not.
  bool leave();
  // Whether this thread waits for events again.
  bool come_back();
  // Makes one more thread wait for events. The caller holds the lock.
  void add_taker();
  // Lets another thread take a thread's place, if that thread is in charge. The caller holds the
  // lock.
  void replace(Taker* taker);
  // Detects threads whose event takes long.
  void watch();

  static thread_local Taker* own_taker_;
  EventSource* source_;
  const int busy_events_;
  const int most_takers_;
  std::mutex mutex_;
  std::condition_variable called_;
  int takers_ = 0;  // threads that wait for events, or handle a brief one
  int idle_ = 0;    // threads that wait to be called
  int calls_ = 0;   // to idle threads, not yet answered
  std::list<Taker*> all_;
};

}  // namespace hotrow_server
