#include "tf/tensorflow_metrics.h"

#include <string>
#include <vector>

#include "xla/tsl/lib/monitoring/collection_registry.h"

namespace {

namespace monitoring = tsl::monitoring;

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> found;
  for (const std::string& text : texts) found.push_back(text.c_str());
  return found;
}

bool is_number(monitoring::ValueType type) {
  return type == monitoring::ValueType::kInt64 || type == monitoring::ValueType::kBool ||
         type == monitoring::ValueType::kHistogram;
}

// The values of the labels in the order of their names; a missing value is empty.
std::vector<const char*> labels_of(const monitoring::Point& point,
                                   const std::vector<std::string>& names) {
  std::vector<const char*> found;
  for (const std::string& name : names) {
    found.push_back("");
    for (const auto& label : point.labels) {
      if (label.name == name) found.back() = label.value.c_str();
    }
  }
  return found;
}

hr_metric_value value_of(const monitoring::Point& point, const char* const* labels) {
  hr_metric_value value{};
  value.labels = labels;
  if (point.value_type == monitoring::ValueType::kHistogram) {
    value.sum = point.histogram_value.sum();
    value.buckets = static_cast<size_t>(point.histogram_value.bucket_size());
    value.bounds = point.histogram_value.bucket_limit().data();
    value.counts = point.histogram_value.bucket().data();
  } else if (point.value_type == monitoring::ValueType::kBool) {
    value.count = point.bool_value ? 1 : 0;
  } else {
    value.count = point.int64_value;
  }
  return value;
}

}  // namespace

__attribute__((visibility("default"))) void hr_tensorflow_metrics(void* context,
                                                                  hr_on_metric on_metric,
                                                                  hr_on_metric_value on_value) {
  const auto collected = monitoring::CollectionRegistry::Default()->CollectMetrics({});
  for (const auto& [name, described] : collected->metric_descriptor_map) {
    const auto points = collected->point_set_map.find(name);
    const bool empty = points == collected->point_set_map.end() || points->second->points.empty();
    if (empty || !is_number(described->value_type)) continue;
    const std::vector<const char*> names = pointers(described->label_names);
    const bool gauge = described->metric_kind == monitoring::MetricKind::kGauge;
    const hr_metric metric{name.c_str(), gauge, names.size(), names.data()};
    on_metric(context, &metric);
    for (const auto& point : points->second->points) {
      const std::vector<const char*> labels = labels_of(*point, described->label_names);
      const hr_metric_value value = value_of(*point, labels.data());
      on_value(context, &value);
    }
  }
}
