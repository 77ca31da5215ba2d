// Logged requests, as TF Serving counts them, and those that were dropped.
#pragma once

#include <cstdint>
#include <string_view>

namespace hotrow_server {

enum class Dropped {
  kQueueFull,   // it would not fit among those that wait to be written
  kNotWritten,  // the file could not be written
};

void count_logged(std::string_view model, int64_t records);
void count_dropped(std::string_view model, Dropped why, int64_t records);

}  // namespace hotrow_server
