// Files of records, one after the other, whose names begin with a prefix:
//
//     PREFIX-20261122T075320Z-0000.tfrecord
//
// the time when it was begun, and a number among those of that second. No file is ever written
// over, and at any time each ends with a whole record.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace hotrow_server {

struct LogFileLimits {
  int64_t bytes;    // a file that would be longer is followed by another one
  int64_t seconds;  // likewise one that is older
};

// Used by one thread at a time.
class LogFile {
 public:
  explicit LogFile(std::string prefix) : prefix_(std::move(prefix)) {}
  ~LogFile();
  LogFile(const LogFile&) = delete;

  // Whether all of these records are in a file now; none of them is otherwise. The first failure is
  // said on standard error, and the end of failures; while they last, one try a second is made.
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
  int64_t lost_ = 0;  // records since it fails
  Time next_try_;
};

}  // namespace hotrow_server
