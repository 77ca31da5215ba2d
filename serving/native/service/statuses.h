// What the control process last said of the versions of models, and of the server's health. It
// stays while no control process runs.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <vector>

#include "hotrow/protos/control.pb.h"
#include "tensorflow_serving/apis/get_model_status.pb.h"
#include "tensorflow_serving/apis/model.pb.h"

namespace hotrow_server {

class CurrentStatuses {
 public:
  std::shared_ptr<const hotrow::Statuses> get() const { return std::atomic_load(&statuses_); }
  void set(const hotrow::Statuses& statuses) {
    std::atomic_store(&statuses_, std::make_shared<const hotrow::Statuses>(statuses));
  }

 private:
  std::shared_ptr<const hotrow::Statuses> statuses_ = std::make_shared<const hotrow::Statuses>();
};

// The state of one version of a spec's model, or of every version seen, the highest first. A label
// is ignored. Fails with NOT_FOUND when the model or the version was never seen.
tensorflow::serving::GetModelStatusResponse model_status(
    const hotrow::Statuses& statuses, const tensorflow::serving::ModelSpec& spec);

// The path of a call that asks for it, and its answer.
inline constexpr char kGetModelStatus[] = "/tensorflow.serving.ModelService/GetModelStatus";
grpc::Status answer_model_status(const hotrow::Statuses& statuses, grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* reply);

// Names of configured models without a version that serves.
std::vector<std::string> waiting_models(const hotrow::Statuses& statuses);

}  // namespace hotrow_server
