// A line on standard error, in the form of TensorFlow's own lines; see
// serving/monitoring/log_line.py.
#pragma once

#include <string>

namespace hotrow_server {

enum class Level : char { kInfo = 'I', kWarning = 'W', kError = 'E' };

// Writes it in one piece.
//   file: the source file, such as "request_log/log_file.cc".
void log_line(Level level, const char* file, const std::string& message);

}  // namespace hotrow_server
