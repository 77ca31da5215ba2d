// Predict on the wire: values go from the received bytes straight into TensorFlow's tensors, and
// back into the bytes of the reply, without messages in between.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensorflow_serving/apis/model.pb.h"
#include "wire/tensor.h"

namespace hotrow_server {

// A tensorflow.serving.PredictRequest.
struct PredictRequest {
  std::optional<tensorflow::serving::ModelSpec> spec;
  std::map<std::string, Tensor> inputs;  // null: not a valid tensor
  std::vector<std::string> output_filter;
};

// Fails with INTERNAL for bytes that are not such a message.
PredictRequest read_predict_request(grpc::ByteBuffer* buffer);

// The bytes of a request, with typed fields.
grpc::ByteBuffer write_predict_request(const PredictRequest& request);

struct NamedOutput {
  const std::string* alias;
  const TF_Tensor* tensor;
};

// A tensorflow.serving.PredictResponse. spec: a serialized ModelSpec. Fails with INVALID_ARGUMENT
// for a type that has no wire form.
grpc::ByteBuffer write_predict_response(const std::vector<NamedOutput>& outputs, bool as_content,
                                        const std::string& spec);

}  // namespace hotrow_server
