// Files of records, one after the other, whose names begin with a prefix:
//
//     PREFIX-20261122T075320Z-0000.tfrecord
//
// The name has the file's start time and a number within that second. No file is ever overwritten,
// and each always ends with a whole record.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace hotrow_server {

struct LogFileLimits {
  int64_t bytes;    // a file that would be longer is followed by another one
  int64_t seconds;  // likewise a file that is older
};

// Used by one thread at a time.
class LogFile {
 public:
  explicit LogFile(std::string prefix) : prefix_(std::move(prefix)) {}
  ~LogFile();
  LogFile(const LogFile&) = delete;

  // Appends all of these records, or none; returns whether it did. Logs the first failure and the
  // end of failures on standard error; while writes fail, it tries once a second.
  bool append(std::string_view records, int64_t count, const LogFileLimits& limits);

 private:
  using Time = std::chrono::steady_clock::time_point;

  // Fail with std::system_error.
  void write(std::string_view records, const LogFileLimits& limits);
  void begin_next();
  [[noreturn]] void fail() const;
  bool is_over(size_t more_bytes, const LogFileLimits& limits) const;
  void close_file();

  const std::string prefix_;
  std::string path_;
  int descriptor_ = -1;  // below 0: no file is open
  int64_t bytes_ = 0;    // in the file
  Time begun_;
  bool failing_ = false;
  int64_t lost_ = 0;  // records since writes fail
  Time next_try_;
};

}  // namespace hotrow_server
