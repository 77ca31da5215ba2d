// The queue of prefetch windows, and the thread that brings them in one after the other.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hotrow {

class WindowQueue {
 public:
  // bring_in(keys): called on the queue's thread.
  explicit WindowQueue(std::function<void(const std::vector<int64_t>&)> bring_in);
  ~WindowQueue() { stop(); }

  // Copies the keys. When more than two windows wait, the oldest is skipped. Fails with the error
  // of an earlier window.
  void add(const int64_t* keys, size_t count);
  // Waits until every window was brought in. Fails with the error of a window.
  void wait();
  // Whether bring_in must skip the rest of its window.
  bool stopping();
  // Drops waiting windows, and returns after the last call of bring_in has returned.
  void stop();

 private:
  void run();

  std::function<void(const std::vector<int64_t>&)> bring_in_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<int64_t>> waiting_;
  bool busy_ = false, stop_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // the last: it uses all above
};

}  // namespace hotrow
