// Replies about models: their versions' status, and their signatures.
#pragma once

#include <string>

#include "hotrow/protos/control.pb.h"
#include "tensorflow_serving/apis/get_model_metadata.pb.h"
#include "tensorflow_serving/apis/get_model_status.pb.h"

namespace hotrow_server {

// {"model_version_status": [..]}
std::string status_json(const tensorflow::serving::GetModelStatusResponse& status);
// {"models": [{"name": "..", "model_version_status": [..]}, ..]}, the configured ones; TensorFlow
// Serving has no such reply.
std::string models_json(const hotrow::Statuses& statuses);
// {"model_spec": {..}, "metadata": {"signature_def": {"signature_def": {..}}}}, the signatures by
// name. Fails with INTERNAL when the response has no signatures.
std::string metadata_json(const tensorflow::serving::GetModelMetadataResponse& response);

}  // namespace hotrow_server
