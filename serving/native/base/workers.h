// The threads of a completion queue.
//
// One thread waits for events and handles them, one after the other, as long as they are brief:
// another thread is woken only when there is work for it, since waking costs more than a small
// model's run. Before something long a thread hands the queue over; while events keep coming
// without a pause more threads take them. A thread that is taken long by what was thought to be
// brief is noticed, and its part given to another one.
#pragma once

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>

namespace hotrow_server {

class Workers {
 public:
  // Begins. The threads go on until the process ends.
  explicit Workers(grpc::CompletionQueue* queue);
  Workers(const Workers&) = delete;

  // Called while an event is handled: what comes now may take long or wait. In other threads
  // nothing happens.
  static void hand_over();

 private:
  using Time = std::chrono::steady_clock::time_point;

  // A thread that takes events.
  struct Taker {
    Workers* workers;
    // Whether it handles an event that the next ones wait for; who sets it to false answers for
    // that: the thread itself, or another one that takes its part.
    std::atomic<bool> in_charge{false};
    std::atomic<Time> since{};
  };

  void work();
  // Handles events until this thread is not to wait for them any more.
  void take_events(Taker* taker);
  // Whether others take the events, so that this thread need not.
  bool leave();
  // Whether it waits for events again.
  bool come_back();
  // Has one more thread wait for events. With the lock.
  void add_taker();
  // Gives the part of a thread to another one, if it has it. With the lock.
  void replace(Taker* taker);
  // Notices threads that are taken long.
  void watch();

  static thread_local Taker* own_taker_;
  grpc::CompletionQueue* queue_;
  const int most_takers_;
  std::mutex mutex_;
  std::condition_variable called_;
  int takers_ = 0;  // threads that wait for events, or handle a brief one
  int idle_ = 0;    // threads that wait to be called
  int calls_ = 0;   // of idle threads, not yet answered
  std::list<Taker*> all_;
};

}  // namespace hotrow_server
