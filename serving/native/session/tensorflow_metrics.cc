#include "session/tensorflow_metrics.h"

#include <dlfcn.h>

#include <cctype>

#include "base/refused.h"
#include "session/session.h"
#include "tf/tensorflow_metrics.h"

namespace hotrow_server {
namespace {

using Families = google::protobuf::RepeatedPtrField<hotrow::StatsReply::Family>;

// TF Serving's form of a metric's path.
std::string prometheus_name(std::string path) {
  for (char& c : path) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') c = ':';
  }
  return path;
}

void add_family(void* context, const hr_metric* metric) {
  hotrow::StatsReply::Family* const family = static_cast<Families*>(context)->Add();
  family->set_name(prometheus_name(metric->name));
  family->set_gauge(metric->gauge != 0);
  family->mutable_label_names()->Assign(metric->label_names, metric->label_names + metric->labels);
}

void add_cell(void* context, const hr_metric_value* value) {
  hotrow::StatsReply::Family& family = *static_cast<Families*>(context)->rbegin();
  hotrow::StatsReply::Cell* const cell = family.add_cells();
  cell->mutable_labels()->Assign(value->labels, value->labels + family.label_names_size());
  cell->set_count(value->count);
  if (value->buckets == 0) return;
  // The last bucket has no bound.
  family.mutable_bounds()->Assign(value->bounds, value->bounds + value->buckets - 1);
  cell->set_sum(value->sum);
  int64_t all = 0;
  for (size_t i = 0; i < value->buckets; ++i) {
    const auto count = static_cast<int64_t>(value->counts[i]);
    cell->add_buckets(count);
    all += count;
  }
  cell->set_count(all);
}

auto metrics_of(const std::string& ops) {
  load_ops(ops);
  void* const library = dlopen(ops.c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* const found = library != nullptr ? dlsym(library, "hr_tensorflow_metrics") : nullptr;
  if (found == nullptr) {
    throw Refused(grpc::StatusCode::FAILED_PRECONDITION, ops + " has no hr_tensorflow_metrics");
  }
  return reinterpret_cast<decltype(&hr_tensorflow_metrics)>(found);
}

}  // namespace

void write_tensorflow_stats(const std::string& ops, hotrow::StatsReply* reply) {
  static const auto metrics = metrics_of(ops);
  metrics(reply->mutable_families(), add_family, add_cell);
}

}  // namespace hotrow_server
