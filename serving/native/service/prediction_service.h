// PredictionService: from the bytes of a request to the bytes of its reply.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <optional>
#include <string>

#include "service/inference.h"

namespace hotrow_server {

class PredictionService {
 public:
  enum class Method { kPredict, kClassify, kRegress, kMultiInference, kGetModelMetadata };
  using Done = std::function<void(const grpc::Status&)>;

  explicit PredictionService(const Inference& inference) : inference_(inference) {}

  // The method of a path such as "/tensorflow.serving.PredictionService/Predict".
  static std::optional<Method> method(const std::string& path);
  static const char* name(Method method);

  // Calls `done` once, at once or later from another thread; until then request and reply must not
  // move. Fills `facts` in.
  void answer(Method method, grpc::ServerContext* context, grpc::ByteBuffer* request,
              grpc::ByteBuffer* reply, RequestFacts* facts, Done done) const;

 private:
  Inference inference_;
};

}  // namespace hotrow_server
