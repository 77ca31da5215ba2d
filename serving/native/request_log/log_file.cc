#include "request_log/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <system_error>

#include "base/log_line.h"

namespace hotrow_server {
namespace {

using Steady = std::chrono::steady_clock;

constexpr auto kReopenAfter = std::chrono::seconds(1);

std::string name_now(const std::string& prefix, int number) {
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  gmtime_r(&now, &parts);
  std::array<char, 32> time, end;
  std::strftime(time.data(), time.size(), "-%Y%m%dT%H%M%SZ", &parts);
  std::snprintf(end.data(), end.size(), "-%04d.tfrecord", number);
  return prefix + time.data() + end.data();
}

}  // namespace

LogFile::~LogFile() { close_file(); }

bool LogFile::append(std::string_view records, int64_t count, const LogFileLimits& limits) {
  if (failing_ && Steady::now() < next_try_) {
    lost_ += count;
    return false;
  }
  try {
    write(records, limits);
  } catch (const std::system_error& error) {
    if (!failing_) {
      log_line(Level::kError, "request_log/log_file.cc",
               std::string("requests are not logged: ") + error.what() +
                   "; make room, or a folder that can be written to");
    }
    failing_ = true;
    lost_ += count;
    next_try_ = Steady::now() + kReopenAfter;
    return false;
  }
  if (failing_) {
    log_line(
        Level::kInfo, "request_log/log_file.cc",
        "requests are logged again: " + path_ + "; " + std::to_string(lost_) + " records are lost");
  }
  failing_ = false;
  lost_ = 0;
  return true;
}

void LogFile::write(std::string_view records, const LogFileLimits& limits) {
  if (descriptor_ >= 0 && is_over(records.size(), limits)) close_file();
  if (descriptor_ < 0) begin_next();
  for (std::string_view left = records; !left.empty();) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // Removes the bytes written before the failure; if that fails, the next write begins another
      // file.
      if (ftruncate(descriptor_, bytes_) != 0) close_file();
      errno = error;
      fail();
    }
    left.remove_prefix(static_cast<size_t>(written));
  }
  bytes_ += static_cast<int64_t>(records.size());
}

void LogFile::begin_next() {
  for (int number = 0;; ++number) {
    path_ = name_now(prefix_, number);
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0640);
    if (descriptor_ >= 0) break;
    if (errno != EEXIST) fail();
  }
  bytes_ = 0;
  begun_ = Steady::now();
}

void LogFile::fail() const { throw std::system_error(errno, std::generic_category(), path_); }

bool LogFile::is_over(size_t more_bytes, const LogFileLimits& limits) const {
  if (bytes_ > 0 && bytes_ + static_cast<int64_t>(more_bytes) > limits.bytes) return true;
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(Steady::now() - begun_);
  if (age.count() >= limits.seconds) return true;
  // Checks whether the file was removed.
  struct stat status;
  return fstat(descriptor_, &status) == 0 && status.st_nlink == 0;
}

void LogFile::close_file() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

}  // namespace hotrow_server
