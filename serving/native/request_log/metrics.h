// Counts of logged requests, as TF Serving counts them, and of dropped ones.
#pragma once

#include <cstdint>
#include <string_view>

namespace hotrow_server {

enum class Dropped {
  kQueueFull,   // it does not fit in the queue
  kNotWritten,  // the file could not be written
};

void count_logged(std::string_view model, int64_t records);
void count_dropped(std::string_view model, Dropped why, int64_t records);

}  // namespace hotrow_server
