// Bodies of :classify and :regress: tf.Examples in, results out. The rules and texts are those of
// TensorFlow Serving's util/json_tensor.cc.
#pragma once

#include <string>

#include "rest/json_value.h"
#include "tensorflow_serving/apis/classification.pb.h"
#include "tensorflow_serving/apis/input.pb.h"
#include "tensorflow_serving/apis/regression.pb.h"

namespace hotrow_server {

// The body's "examples", with its "context" if it has one. Whole numbers and booleans become
// int64, decimals float, strings and {"b64": "..."} bytes. Fails with INVALID_ARGUMENT for a body
// of another form.
template <typename Json>
tensorflow::serving::Input read_examples(const Json& body);
extern template tensorflow::serving::Input read_examples(const FastJson& body);
extern template tensorflow::serving::Input read_examples(const LiberalJson& body);

// {"results": [[["label", score], ..], ..]}
std::string write_classes(const tensorflow::serving::ClassificationResult& result);
// {"results": [value, ..]}
std::string write_values(const tensorflow::serving::RegressionResult& result);

}  // namespace hotrow_server
