// TensorFlow's own metrics behind a C ABI, for callers with another protobuf and Abseil than
// TensorFlow's.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// A metric; its pointers are TensorFlow's, and valid until the call ends.
struct hr_metric {
  const char* name;  // "/tensorflow/core/graph_runs"
  int gauge;         // not 0: its values may decrease
  size_t labels;
  const char* const* label_names;  // [labels]
};

// A value of a metric for one set of labels. Without buckets it is `count`; else a histogram.
struct hr_metric_value {
  const char* const* labels;  // [labels], in the order of their names
  int64_t count;
  double sum;
  size_t buckets;
  const double* bounds;  // [buckets], upper ones; the last one is the largest double
  const double* counts;  // [buckets]
};

// Calls metric() for each metric that has a value, and value() for each of them after it. Texts,
// decimals and percentiles are left out.
typedef void (*hr_on_metric)(void* context, const hr_metric* metric);
typedef void (*hr_on_metric_value)(void* context, const hr_metric_value* value);
void hr_tensorflow_metrics(void* context, hr_on_metric metric, hr_on_metric_value value);
}
