#include "request_log/metrics.h"

#include "base/metrics.h"

namespace hotrow_server {
namespace {

Counters log_count(":tensorflow:serving:request_log_count", {"model_name", "status_code"});
Counters dropped("hotrow_request_log_dropped_total", {"model_name", "reason"});

}  // namespace

void count_logged(std::string_view model, int64_t records) {
  log_count.at({model, "OK"}).add(records);
}

void count_dropped(std::string_view model, Dropped why, int64_t records) {
  const bool full = why == Dropped::kQueueFull;
  log_count.at({model, full ? "RESOURCE_EXHAUSTED" : "UNAVAILABLE"}).add(records);
  dropped.at({model, full ? "queue_full" : "not_written"}).add(records);
}

}  // namespace hotrow_server
