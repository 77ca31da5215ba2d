// A reader in front of another reader, for tests: it counts, waits at a gate, and fails.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "core/store/row_reader.h"

namespace hotrow {

class SlowReader : public RowReader {
 public:
  explicit SlowReader(const RowReader& reader) : reader_(reader) {}

  const std::vector<StoredTable>& tables() const override { return reader_.tables(); }

  ReadFailure read(const ReadRequest* requests, size_t count, Deadline deadline) const override {
    // The rows read here are old by the time the gate opens.
    ReadFailure failure = reader_.read(requests, count, deadline);
    std::unique_lock lock(mutex_);
    ++reads_;
    for (size_t r = 0; r < count; ++r) keys_ += requests[r].count;
    changed_.notify_all();
    if (throws_) throw Error(Code::kInternal, "thrown by the reader");
    const bool in_time = changed_.wait_until(lock, deadline, [&] { return open_; });
    for (size_t r = 0; r < count; ++r) {
      for (size_t i = 0; i < requests[r].count; ++i) {
        if (in_time && fail_keys_.count(requests[r].keys[i]) == 0) continue;
        requests[r].states[i] = ReadState::kFailed;
        failure = {Code::kUnavailable, in_time ? "shard 3 is away" : "shard 3 is slow"};
      }
    }
    return failure;
  }

  void set_open(bool open) {
    change([&] { open_ = open; });
  }
  void set_failing(std::set<int64_t> keys) {
    change([&] { fail_keys_ = std::move(keys); });
  }
  void set_throwing(bool throws) {
    change([&] { throws_ = throws; });
  }
  void await_reads(size_t reads) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reads_ >= reads; });
  }
  size_t reads() const {
    std::lock_guard lock(mutex_);
    return reads_;
  }
  size_t keys() const {
    std::lock_guard lock(mutex_);
    return keys_;
  }

 private:
  template <typename Change>
  void change(Change&& what) {
    {
      std::lock_guard lock(mutex_);
      what();
    }
    changed_.notify_all();
  }

  const RowReader& reader_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable size_t reads_ = 0, keys_ = 0;
  bool open_ = true, throws_ = false;
  std::set<int64_t> fail_keys_;
};

}  // namespace hotrow
