// What a path of the REST API means.
#pragma once

#include <string_view>

#include "tensorflow_serving/apis/model.pb.h"

namespace hotrow_server {

struct RestPath {
  enum class Kind { kPredict, kClassify, kRegress, kStatus, kMetadata, kModels };

  // Whether a model runs.
  bool is_inference() const { return kind <= Kind::kRegress; }

  Kind kind = Kind::kModels;
  tensorflow::serving::ModelSpec spec;  // of kModels: empty
};

// target: as it was sent, percent-encoded and with its query string, which is part of a name as in
// TensorFlow Serving. Parts of names that are not UTF-8 become U+FFFD. Fails with INVALID_ARGUMENT
// for any other verb or path, and for a version beyond int64.
RestPath read_path(std::string_view verb, std::string_view target);

}  // namespace hotrow_server
