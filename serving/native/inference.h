// What the server answers: requests and replies are TF Serving's messages.
#pragma once

#include "routes.h"
#include "session.h"
#include "tensorflow_serving/apis/classification.pb.h"
#include "tensorflow_serving/apis/get_model_metadata.pb.h"
#include "tensorflow_serving/apis/inference.pb.h"
#include "tensorflow_serving/apis/predict.pb.h"
#include "tensorflow_serving/apis/regression.pb.h"

namespace hotrow_server {

struct InferenceOptions {
  bool tensor_content = false;     // outputs in one piece of bytes
  bool check_method_name = false;  // of signatures, as --enable_signature_method_name_check
};

// Every method fails with Refused: TF Serving's code and text.
class Inference {
 public:
  Inference(const CurrentRoutes& routes, InferenceOptions options)
      : routes_(&routes), options_(options) {}

  void predict(const tensorflow::serving::PredictRequest& request, Deadline deadline,
               tensorflow::serving::PredictResponse* response) const;
  void classify(const tensorflow::serving::ClassificationRequest& request, Deadline deadline,
                tensorflow::serving::ClassificationResponse* response) const;
  void regress(const tensorflow::serving::RegressionRequest& request, Deadline deadline,
               tensorflow::serving::RegressionResponse* response) const;
  void multi_inference(const tensorflow::serving::MultiInferenceRequest& request, Deadline deadline,
                       tensorflow::serving::MultiInferenceResponse* response) const;
  void metadata(const tensorflow::serving::GetModelMetadataRequest& request,
                tensorflow::serving::GetModelMetadataResponse* response) const;

 private:
  // The servable of a request's spec.
  template <typename Request>
  Routes::Route route(const Request& request) const;

  const CurrentRoutes* routes_;
  InferenceOptions options_;
};

}  // namespace hotrow_server
