#include "prediction_service.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

#include "answer.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;

// Metadata of the REST gateway: how long the run may take. Its call waits a little longer, for what
// TensorFlow says then.
constexpr char kRunMillis[] = "x-hotrow-run-millis";

Deadline deadline_of(const grpc::ServerContext& context) {
  const Clock::time_point deadline = context.deadline();
  const auto& metadata = context.client_metadata();
  if (const auto given = metadata.find(kRunMillis); given != metadata.end()) {
    const std::string millis(given->second.data(), given->second.size());
    return std::min(deadline, Clock::now() + std::chrono::milliseconds(
                                                 std::strtoll(millis.c_str(), nullptr, 10)));
  }
  if (deadline == Clock::time_point::max()) return std::nullopt;
  return deadline;
}

}  // namespace

grpc::Status PredictionService::Predict(grpc::ServerContext* context,
                                        const serving::PredictRequest* request,
                                        serving::PredictResponse* response) {
  return answer(*context, [&] { inference_.predict(*request, deadline_of(*context), response); });
}

grpc::Status PredictionService::Classify(grpc::ServerContext* context,
                                         const serving::ClassificationRequest* request,
                                         serving::ClassificationResponse* response) {
  return answer(*context, [&] { inference_.classify(*request, deadline_of(*context), response); });
}

grpc::Status PredictionService::Regress(grpc::ServerContext* context,
                                        const serving::RegressionRequest* request,
                                        serving::RegressionResponse* response) {
  return answer(*context, [&] { inference_.regress(*request, deadline_of(*context), response); });
}

grpc::Status PredictionService::MultiInference(grpc::ServerContext* context,
                                               const serving::MultiInferenceRequest* request,
                                               serving::MultiInferenceResponse* response) {
  return answer(*context,
                [&] { inference_.multi_inference(*request, deadline_of(*context), response); });
}

grpc::Status PredictionService::GetModelMetadata(grpc::ServerContext* context,
                                                 const serving::GetModelMetadataRequest* request,
                                                 serving::GetModelMetadataResponse* response) {
  return answer(*context, [&] { inference_.metadata(*request, response); });
}

}  // namespace hotrow_server
