#include "core/lmdb/write_turn.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/status.h"

namespace hotrow {
namespace {

// Short, since a writer that has its turn back at once would leave no gap for others.
constexpr std::chrono::microseconds kLongestPause{1000};

// "process 7 (python), which is stopped": the holder of the lock on a file.
std::string holder_of(int file) {
  struct stat there;
  if (::fstat(file, &there) != 0) return "another process";
  const std::string inode = ":" + std::to_string(there.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    // 3: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
    std::istringstream words(line);
    std::string number, kind, mode, access, pid, place;
    words >> number >> kind >> mode >> access >> pid >> place;
    const bool is_it = kind == "FLOCK" && place.size() > inode.size() &&
                       place.compare(place.size() - inode.size(), inode.size(), inode) == 0;
    if (!is_it) continue;
    std::string name, state;
    std::ifstream("/proc/" + pid + "/comm") >> name;
    std::ifstream stat("/proc/" + pid + "/stat");
    std::string text;
    std::getline(stat, text);
    const size_t end = text.rfind(')');
    if (end != std::string::npos && end + 2 < text.size()) state = text.substr(end + 2, 1);
    std::string found = "process " + pid;
    if (!name.empty()) found += " (" + name + ")";
    if (state == "T" || state == "t") found += ", which is stopped,";
    return found;
  }
  return "another process";
}

}  // namespace

WriteTurn::WriteTurn(std::timed_mutex& threads, int file, std::chrono::milliseconds patience,
                     const std::string& what)
    : threads_(threads, std::defer_lock), file_(file) {
  const auto end = std::chrono::steady_clock::now() + patience;
  const double seconds = static_cast<double>(patience.count()) / 1000.0;
  if (!threads_.try_lock_until(end)) {
    fail(Code::kUnavailable, "%s: another thread of this process has written for %.1f s",
         what.c_str(), seconds);
  }
  std::chrono::microseconds pause{50};
  while (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      fail(Code::kUnavailable, "%s: cannot be locked: %s", what.c_str(), std::strerror(errno));
    }
    if (std::chrono::steady_clock::now() >= end) {
      fail(Code::kUnavailable,
           "%s: %s has kept others from writing for %.1f s; end it, or let it go on, and try again",
           what.c_str(), holder_of(file_).c_str(), seconds);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

WriteTurn::~WriteTurn() { ::flock(file_, LOCK_UN); }

}  // namespace hotrow
