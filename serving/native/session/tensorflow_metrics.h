// What TensorFlow counts itself (`/tensorflow/core/...`), under the names of TF Serving's page.
#pragma once

#include <string>

#include "hotrow/protos/control.pb.h"

namespace hotrow_server {

// Adds TensorFlow's metrics. ops: the library of our ops, which has TensorFlow's C++ and reads
// them. Fails with FAILED_PRECONDITION when it cannot be loaded.
void write_tensorflow_stats(const std::string& ops, hotrow::StatsReply* reply);

}  // namespace hotrow_server
