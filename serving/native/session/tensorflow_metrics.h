// TensorFlow's own metrics (`/tensorflow/core/...`), under TF Serving's names.
#pragma once

#include <string>

#include "hotrow/protos/control.pb.h"

namespace hotrow_server {

// Adds TensorFlow's metrics. ops: the library of our ops, which links TensorFlow's C++ and reads
// the metrics. Fails with FAILED_PRECONDITION when it cannot be loaded.
void write_tensorflow_stats(const std::string& ops, hotrow::StatsReply* reply);

}  // namespace hotrow_server
