#include "base/log_line.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace hotrow_server {

void log_line(Level level, const char* file, const std::string& message) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  std::tm parts;
  localtime_r(&seconds, &parts);
  std::array<char, 32> time;
  std::strftime(time.data(), time.size(), "%Y-%m-%d %H:%M:%S", &parts);
  std::fprintf(stderr, "%s.%06d: %c hotrow/serving/native/%s] %s\n", time.data(),
               static_cast<int>(micros % 1000000), static_cast<char>(level), file, message.c_str());
}

}  // namespace hotrow_server
