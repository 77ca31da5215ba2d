// PredictionService over gRPC.
#pragma once

#include "inference.h"
#include "tensorflow_serving/apis/prediction_service.grpc.pb.h"

namespace hotrow_server {

class PredictionService final : public tensorflow::serving::PredictionService::Service {
 public:
  explicit PredictionService(const Inference& inference) : inference_(inference) {}

  grpc::Status Predict(grpc::ServerContext* context,
                       const tensorflow::serving::PredictRequest* request,
                       tensorflow::serving::PredictResponse* response) override;
  grpc::Status Classify(grpc::ServerContext* context,
                        const tensorflow::serving::ClassificationRequest* request,
                        tensorflow::serving::ClassificationResponse* response) override;
  grpc::Status Regress(grpc::ServerContext* context,
                       const tensorflow::serving::RegressionRequest* request,
                       tensorflow::serving::RegressionResponse* response) override;
  grpc::Status MultiInference(grpc::ServerContext* context,
                              const tensorflow::serving::MultiInferenceRequest* request,
                              tensorflow::serving::MultiInferenceResponse* response) override;
  grpc::Status GetModelMetadata(grpc::ServerContext* context,
                                const tensorflow::serving::GetModelMetadataRequest* request,
                                tensorflow::serving::GetModelMetadataResponse* response) override;

 private:
  Inference inference_;
};

}  // namespace hotrow_server
