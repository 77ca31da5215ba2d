// Writes records to files in its own thread, so that callers never wait for a disk. The queue is
// bounded; more records are refused.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "request_log/log_file.h"

namespace hotrow_server {

class RecordWriter {
 public:
  struct Limits {
    LogFileLimits file;
    int64_t queue_bytes;
  };
  struct Record {
    std::string bytes;  // with room for head and foot, see wire/tf_record.h
    std::shared_ptr<LogFile> file;
    std::string model;  // for metrics
  };

  RecordWriter() = default;
  RecordWriter(const RecordWriter&) = delete;

  void set_limits(const Limits& limits);
  // The files at a prefix; the open one is closed when no user holds this any more. The first call
  // starts the thread, which runs until the process ends.
  std::shared_ptr<LogFile> file(const std::string& prefix);
  // Reserves room for a record of `bytes`; false: there is none.
  bool reserve(size_t bytes);
  // Releases the room.
  void release(size_t bytes) { bytes_.fetch_sub(static_cast<int64_t>(bytes)); }
  // Adds a record whose room was reserved.
  void add(Record record);
  // Returns when the current records are written, or the time is up.
  void flush(std::chrono::milliseconds most);

 private:
  using Records = std::vector<Record>;

  void work();
  // The caller holds the lock.
  std::vector<std::shared_ptr<LogFile>> take_unused_files();
  static void write(Records* records, const LogFileLimits& limits);

  std::atomic<int64_t> bytes_{0};  // of records that are not written
  std::atomic<int64_t> most_bytes_{0};
  std::mutex mutex_;
  std::condition_variable wake_, written_;
  LogFileLimits limits_{};
  Records queue_;
  std::map<std::string, std::shared_ptr<LogFile>> files_;  // by prefix
  bool started_ = false;
  bool writing_ = false;
  int hurries_ = 0;  // callers of flush
};

}  // namespace hotrow_server
