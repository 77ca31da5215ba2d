#include "inference.h"

#include <set>

#include "examples.h"
#include "refused.h"
#include "signature.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;

constexpr char kDefaultSignature[] = "serving_default";
constexpr char kSignatures[] = "signature_def";
constexpr char kClassify[] = "tensorflow/serving/classify";
constexpr char kRegress[] = "tensorflow/serving/regress";
constexpr char kPredict[] = "tensorflow/serving/predict";

std::string resolved(const std::string& name) { return name.empty() ? kDefaultSignature : name; }

void name_version(const serving::ModelSpec& asked, int64_t version, const std::string& signature,
                  serving::ModelSpec* spec) {
  spec->set_name(asked.name());
  spec->mutable_version()->set_value(version);
  if (!signature.empty()) spec->set_signature_name(signature);
}

// For Classify and Regress; Predict answers otherwise.
const Signature& signature_of(const Servable& servable, const std::string& name) {
  const Signature* const signature = servable.signature(resolved(name));
  if (signature == nullptr) {
    refuse("No signature was found with the name: " + resolved(name));
  }
  return *signature;
}

void check_method(const Signature& signature, const std::string& kind, const char* method) {
  if (signature.def().method_name() == method) return;
  refuse("Expected " + kind + " signature method_name to be " + method +
         ". Was: " + signature.def().method_name());
}

Results run_examples(const Servable& servable, const Signature& signature, const ExamplePlan& plan,
                     const TF_Tensor* input, Deadline deadline) {
  std::vector<TF_Output> fetches;
  for (const Signature::Fetch* fetch : plan.fetches) fetches.push_back(fetch->tensor());
  return servable.session().run({plan.input->tensor()}, {const_cast<TF_Tensor*>(input)}, fetches,
                                deadline, signature.typical_nanos());
}

}  // namespace

template <typename Request>
Routes::Route Inference::route(const Request& request) const {
  if (!request.has_model_spec()) refuse("Missing ModelSpec");
  return routes_->get()->find(request.model_spec());
}

void Inference::predict(const serving::PredictRequest& request, Deadline deadline,
                        serving::PredictResponse* response) const {
  const Routes::Route way = route(request);
  const std::string name = resolved(request.model_spec().signature_name());
  const Signature* const signature = way.servable->signature(name);
  if (signature == nullptr) {
    throw Refused(grpc::StatusCode::FAILED_PRECONDITION,
                  "Serving signature key \"" + name + "\" not found.");
  }
  const std::string& method = signature->def().method_name();
  if (options_.check_method_name && method != kPredict && method != kClassify &&
      method != kRegress) {
    throw Refused(grpc::StatusCode::INTERNAL,
                  std::string("Expected prediction signature method_name to be one of {") +
                      kPredict + ", " + kClassify + ", " + kRegress + "}. Was: " + method);
  }
  const PredictPlan plan = plan_predict(*signature, request);
  std::vector<TF_Output> fetches;
  fetches.reserve(plan.fetches.size());
  for (const Signature::Fetch* fetch : plan.fetches) fetches.push_back(fetch->tensor());
  const Results results = way.servable->session().run(plan.feeds, plan.inputs, fetches, deadline,
                                                      signature->typical_nanos());
  name_version(request.model_spec(), way.version, name, response->mutable_model_spec());
  for (size_t i = 0; i < results.size(); ++i) {
    tensorflow::TensorProto& output = (*response->mutable_outputs())[plan.fetches[i]->alias];
    if (!encode(results[i], options_.tensor_content, &output)) {
      refuse(
          "output " + plan.fetches[i]->alias + ": data type " +
          tensorflow::DataType_Name(static_cast<tensorflow::DataType>(TF_TensorType(results[i]))) +
          " has no wire form");
    }
  }
}

void Inference::classify(const serving::ClassificationRequest& request, Deadline deadline,
                         serving::ClassificationResponse* response) const {
  const Routes::Route way = route(request);
  const Signature& signature = signature_of(*way.servable, request.model_spec().signature_name());
  if (options_.check_method_name) check_method(signature, "classification", kClassify);
  const ExamplePlan plan = plan_classify(signature);
  const Tensor input = serialized_examples(request.input());
  const Results results = run_examples(*way.servable, signature, plan, input.get(), deadline);
  hotrow_server::classify(plan, results, 0, TF_Dim(input.get(), 0), response->mutable_result());
  name_version(request.model_spec(), way.version, signature.name(), response->mutable_model_spec());
}

void Inference::regress(const serving::RegressionRequest& request, Deadline deadline,
                        serving::RegressionResponse* response) const {
  const Routes::Route way = route(request);
  const Signature& signature = signature_of(*way.servable, request.model_spec().signature_name());
  if (options_.check_method_name) check_method(signature, "regression", kRegress);
  const ExamplePlan plan = plan_regress(signature);
  const Tensor input = serialized_examples(request.input());
  const Results results = run_examples(*way.servable, signature, plan, input.get(), deadline);
  hotrow_server::regress(results, 0, TF_Dim(input.get(), 0), response->mutable_result());
  name_version(request.model_spec(), way.version, signature.name(), response->mutable_model_spec());
}

void Inference::multi_inference(const serving::MultiInferenceRequest& request, Deadline deadline,
                                serving::MultiInferenceResponse* response) const {
  if (request.tasks().empty()) refuse("ModelSpec has no name specified.");
  const Routes::Route way = routes_->get()->find(request.tasks(0).model_spec());
  struct Task {
    const Signature* signature;
    bool classify;
    ExamplePlan plan;
  };
  std::vector<Task> tasks;
  std::set<std::string> seen;
  for (const auto& task : request.tasks()) {
    const serving::ModelSpec& spec = task.model_spec();
    if (spec.name().empty()) refuse("Found ModelSpec with an empty model name.");
    if (spec.name() != request.tasks(0).model_spec().name()) {
      refuse("All ModelSpecs in a MultiInferenceRequest must access the same model name.");
    }
    const std::string name = resolved(spec.signature_name());
    if (!seen.insert(name).second) refuse("Duplicate evaluation of signature: " + name);
    const Signature* const signature = way.servable->signature(name);
    if (signature == nullptr) refuse("Requested signature not found in model graph: " + name);
    const bool classify = task.method_name() == kClassify;
    if (!classify && task.method_name() != kRegress) {
      throw Refused(grpc::StatusCode::UNIMPLEMENTED,
                    "Unsupported signature method_name: " + task.method_name());
    }
    if (options_.check_method_name) {
      check_method(*signature, classify ? "classification" : "regression",
                   classify ? kClassify : kRegress);
    }
    tasks.push_back(
        {signature, classify, classify ? plan_classify(*signature) : plan_regress(*signature)});
    if (tasks[0].plan.input->tensor_name != tasks.back().plan.input->tensor_name) {
      refuse("Input tensor must be the same for all Signatures.");
    }
  }
  // One run for all.
  const Tensor input = serialized_examples(request.input());
  std::vector<TF_Output> fetches;
  for (const Task& task : tasks) {
    for (const Signature::Fetch* fetch : task.plan.fetches) fetches.push_back(fetch->tensor());
  }
  const Results results =
      way.servable->session().run({tasks[0].plan.input->tensor()}, {input.get()}, fetches, deadline,
                                  tasks[0].signature->typical_nanos());
  size_t first = 0;
  for (const Task& task : tasks) {
    serving::InferenceResult* const result = response->add_results();
    const int64_t rows = TF_Dim(input.get(), 0);
    if (task.classify) {
      hotrow_server::classify(task.plan, results, first, rows,
                              result->mutable_classification_result());
    } else {
      hotrow_server::regress(results, first, rows, result->mutable_regression_result());
    }
    name_version(request.tasks(0).model_spec(), way.version, task.signature->name(),
                 result->mutable_model_spec());
    first += task.plan.fetches.size();
  }
}

void Inference::metadata(const serving::GetModelMetadataRequest& request,
                         serving::GetModelMetadataResponse* response) const {
  if (!request.has_model_spec()) refuse("Missing ModelSpec");
  if (request.metadata_field().empty()) {
    refuse("GetModelMetadataRequest must specify at least one metadata_field");
  }
  for (const std::string& field : request.metadata_field()) {
    if (field != kSignatures) refuse("Metadata field " + field + " is not supported");
  }
  const Routes::Route way = routes_->get()->find(request.model_spec());
  name_version(request.model_spec(), way.version, "", response->mutable_model_spec());
  google::protobuf::Any& signatures = (*response->mutable_metadata())[kSignatures];
  signatures.set_type_url("type.googleapis.com/tensorflow.serving.SignatureDefMap");
  signatures.set_value(way.servable->metadata());
}

}  // namespace hotrow_server
