// The server's methods: requests and replies are TF Serving's messages.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <string>
#include <vector>

#include "service/request_metrics.h"
#include "service/routes.h"
#include "session/run.h"
#include "tensorflow_serving/apis/classification.pb.h"
#include "tensorflow_serving/apis/get_model_metadata.pb.h"
#include "tensorflow_serving/apis/inference.pb.h"
#include "tensorflow_serving/apis/regression.pb.h"
#include "wire/predict_wire.h"

namespace hotrow_server {

struct InferenceOptions {
  bool tensor_content = false;     // outputs in one piece of bytes
  bool check_method_name = false;  // of signatures, as with --enable_signature_method_name_check
};

// The run of a request, and the function that makes its reply.
struct Plan {
  Routes::Route way;
  Run run;                                    // without its deadline
  std::vector<std::string> signatures;        // that it runs
  std::function<void(const Results&)> reply;  // from the first results; other results may follow
  std::function<void()> log;                  // after the reply; null: the request is not logged
};

// The empty name is the default's.
std::string resolved(const std::string& signature);

// Every method and every reply function fails with Refused: TF Serving's code and text.
class Inference {
 public:
  Inference(const CurrentRoutes& routes, InferenceOptions options)
      : routes_(&routes), options_(options) {}

  // Takes the outputs of a Predict request, and the ModelSpec that answered, serialized.
  using WriteOutputs =
      std::function<void(const std::vector<NamedOutput>& outputs, const std::string& spec)>;

  // The route of a spec. This and the other methods fill `facts` in as they become known.
  Routes::Route route(const tensorflow::serving::ModelSpec& spec, RequestFacts* facts) const;
  // request: its spec has led to the route; its inputs are moved out.
  Plan predict(Routes::Route way, PredictRequest* request, RequestFacts* facts,
               WriteOutputs write) const;
  // From the bytes of a PredictRequest to the bytes of a PredictResponse.
  Plan predict(grpc::ByteBuffer* request, RequestFacts* facts, grpc::ByteBuffer* reply) const;
  Plan classify(const tensorflow::serving::ClassificationRequest& request, RequestFacts* facts,
                tensorflow::serving::ClassificationResponse* response) const;
  Plan regress(const tensorflow::serving::RegressionRequest& request, RequestFacts* facts,
               tensorflow::serving::RegressionResponse* response) const;
  Plan multi_inference(const tensorflow::serving::MultiInferenceRequest& request,
                       RequestFacts* facts,
                       tensorflow::serving::MultiInferenceResponse* response) const;
  void metadata(const tensorflow::serving::GetModelMetadataRequest& request, RequestFacts* facts,
                tensorflow::serving::GetModelMetadataResponse* response) const;

 private:
  const CurrentRoutes* routes_;
  InferenceOptions options_;
};

}  // namespace hotrow_server
