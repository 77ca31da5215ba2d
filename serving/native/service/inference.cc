#include "service/inference.h"

#include <set>

#include "base/refused.h"
#include "session/examples.h"
#include "session/signature.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;

constexpr char kDefaultSignature[] = "serving_default";
constexpr char kSignatures[] = "signature_def";
constexpr char kClassify[] = "tensorflow/serving/classify";
constexpr char kRegress[] = "tensorflow/serving/regress";
constexpr char kPredict[] = "tensorflow/serving/predict";

void name_version(const serving::ModelSpec& asked, int64_t version, const std::string& signature,
                  serving::ModelSpec* spec) {
  spec->set_name(asked.name());
  spec->mutable_version()->set_value(version);
  if (!signature.empty()) spec->set_signature_name(signature);
}

// For Classify and Regress; Predict has other errors.
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

// Feeds the examples of a request to all the tasks' one input.
struct Examples {
  Tensor tensor;
  int64_t rows;
};

Examples examples_of(const serving::Input& input) {
  Tensor tensor = serialized_examples(input);
  const int64_t rows = TF_Dim(tensor.get(), 0);
  return {std::move(tensor), rows};
}

Run run_examples(const Signature& signature, const ExamplePlan& plan, Examples* examples) {
  Run run;
  run.feeds = {plan.input->tensor()};
  run.inputs = {examples->tensor.get()};
  run.owned.push_back(std::move(examples->tensor));
  for (const Signature::Fetch* fetch : plan.fetches) run.fetches.push_back(fetch->tensor());
  run.typical_nanos = signature.typical_nanos();
  return run;
}

// The route of a spec.
Routes::Route find(const CurrentRoutes& routes, const serving::ModelSpec& spec,
                   RequestFacts* facts) {
  facts->model = spec.name();
  Routes::Route way = routes.get()->find(spec);
  facts->version = std::to_string(way.version);
  return way;
}

// The route of a request's spec.
template <typename Request>
Routes::Route route_of(const CurrentRoutes& routes, const Request& request, RequestFacts* facts) {
  if (!request.has_model_spec()) refuse("Missing ModelSpec");
  return find(routes, request.model_spec(), facts);
}

}  // namespace

std::string resolved(const std::string& signature) {
  return signature.empty() ? kDefaultSignature : signature;
}

Routes::Route Inference::route(const serving::ModelSpec& spec, RequestFacts* facts) const {
  return find(*routes_, spec, facts);
}

Plan Inference::predict(Routes::Route way, PredictRequest* request, RequestFacts* facts,
                        WriteOutputs write) const {
  Plan plan;
  plan.way = std::move(way);
  const std::string name = resolved(request->spec->signature_name());
  const Signature* const signature = plan.way.servable->signature(name);
  if (signature == nullptr) {
    throw Refused(grpc::StatusCode::FAILED_PRECONDITION,
                  "Serving signature key \"" + name + "\" not found.");
  }
  facts->signature = name;
  plan.signatures = {name};
  const std::string& method = signature->def().method_name();
  if (options_.check_method_name && method != kPredict && method != kClassify &&
      method != kRegress) {
    throw Refused(grpc::StatusCode::INTERNAL,
                  std::string("Expected prediction signature method_name to be one of {") +
                      kPredict + ", " + kClassify + ", " + kRegress + "}. Was: " + method);
  }
  std::vector<const Signature::Fetch*> fetches = plan_predict(*signature, request, &plan.run);
  serving::ModelSpec used;
  name_version(*request->spec, plan.way.version, name, &used);
  plan.reply = [fetches = std::move(fetches), used = used.SerializeAsString(),
                write = std::move(write)](const Results& results) {
    std::vector<NamedOutput> outputs;
    for (size_t i = 0; i < fetches.size(); ++i) {
      outputs.push_back({&fetches[i]->alias, results[i]});
    }
    write(outputs, used);
  };
  return plan;
}

Plan Inference::predict(grpc::ByteBuffer* buffer, RequestFacts* facts,
                        grpc::ByteBuffer* reply) const {
  PredictRequest request = read_predict_request(buffer);
  if (!request.spec.has_value()) refuse("Missing ModelSpec");
  Routes::Route way = find(*routes_, *request.spec, facts);
  return predict(std::move(way), &request, facts,
                 [reply, as_content = options_.tensor_content](
                     const std::vector<NamedOutput>& outputs, const std::string& spec) {
                   *reply = write_predict_response(outputs, as_content, spec);
                 });
}

Plan Inference::classify(const serving::ClassificationRequest& request, RequestFacts* facts,
                         serving::ClassificationResponse* response) const {
  Plan plan;
  plan.way = route_of(*routes_, request, facts);
  const Signature& signature =
      signature_of(*plan.way.servable, request.model_spec().signature_name());
  facts->signature = signature.name();
  plan.signatures = {signature.name()};
  if (options_.check_method_name) check_method(signature, "classification", kClassify);
  const ExamplePlan task = plan_classify(signature);
  Examples examples = examples_of(request.input());
  facts->examples = examples.rows;
  plan.run = run_examples(signature, task, &examples);
  name_version(request.model_spec(), plan.way.version, signature.name(),
               response->mutable_model_spec());
  plan.reply = [task, response, rows = examples.rows](const Results& results) {
    hotrow_server::classify(task, results, 0, rows, response->mutable_result());
  };
  return plan;
}

Plan Inference::regress(const serving::RegressionRequest& request, RequestFacts* facts,
                        serving::RegressionResponse* response) const {
  Plan plan;
  plan.way = route_of(*routes_, request, facts);
  const Signature& signature =
      signature_of(*plan.way.servable, request.model_spec().signature_name());
  facts->signature = signature.name();
  plan.signatures = {signature.name()};
  if (options_.check_method_name) check_method(signature, "regression", kRegress);
  const ExamplePlan task = plan_regress(signature);
  Examples examples = examples_of(request.input());
  facts->examples = examples.rows;
  plan.run = run_examples(signature, task, &examples);
  name_version(request.model_spec(), plan.way.version, signature.name(),
               response->mutable_model_spec());
  plan.reply = [response, rows = examples.rows](const Results& results) {
    hotrow_server::regress(results, 0, rows, response->mutable_result());
  };
  return plan;
}

Plan Inference::multi_inference(const serving::MultiInferenceRequest& request, RequestFacts* facts,
                                serving::MultiInferenceResponse* response) const {
  if (request.tasks().empty()) refuse("ModelSpec has no name specified.");
  Plan plan;
  plan.way = find(*routes_, request.tasks(0).model_spec(), facts);
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
    const Signature* const signature = plan.way.servable->signature(name);
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
  }
  // One run for all.
  Examples examples = examples_of(request.input());
  ExamplePlan together{tasks[0].plan.input, {}};
  for (const Task& task : tasks) {
    together.fetches.insert(together.fetches.end(), task.plan.fetches.begin(),
                            task.plan.fetches.end());
    plan.signatures.push_back(task.signature->name());
    name_version(request.tasks(0).model_spec(), plan.way.version, task.signature->name(),
                 response->add_results()->mutable_model_spec());
  }
  facts->signature = tasks[0].signature->name();
  facts->examples = examples.rows;
  plan.run = run_examples(*tasks[0].signature, together, &examples);
  // Signatures of TensorFlow 2 have an input tensor each: the same examples go to all of them.
  std::set<std::string> fed{tasks[0].plan.input->tensor_name};
  for (const Task& task : tasks) {
    if (!fed.insert(task.plan.input->tensor_name).second) continue;
    plan.run.feeds.push_back(task.plan.input->tensor());
    plan.run.inputs.push_back(plan.run.inputs[0]);
  }
  plan.reply = [tasks = std::move(tasks), rows = examples.rows, response](const Results& results) {
    size_t first = 0;
    for (size_t i = 0; i < tasks.size(); ++i) {
      serving::InferenceResult* const result = response->mutable_results(static_cast<int>(i));
      if (tasks[i].classify) {
        hotrow_server::classify(tasks[i].plan, results, first, rows,
                                result->mutable_classification_result());
      } else {
        hotrow_server::regress(results, first, rows, result->mutable_regression_result());
      }
      first += tasks[i].plan.fetches.size();
    }
  };
  return plan;
}

void Inference::metadata(const serving::GetModelMetadataRequest& request, RequestFacts* facts,
                         serving::GetModelMetadataResponse* response) const {
  if (!request.has_model_spec()) refuse("Missing ModelSpec");
  if (request.metadata_field().empty()) {
    refuse("GetModelMetadataRequest must specify at least one metadata_field");
  }
  for (const std::string& field : request.metadata_field()) {
    if (field != kSignatures) refuse("Metadata field " + field + " is not supported");
  }
  const Routes::Route way = find(*routes_, request.model_spec(), facts);
  name_version(request.model_spec(), way.version, "", response->mutable_model_spec());
  google::protobuf::Any& signatures = (*response->mutable_metadata())[kSignatures];
  signatures.set_type_url("type.googleapis.com/tensorflow.serving.SignatureDefMap");
  signatures.set_value(way.servable->metadata());
}

}  // namespace hotrow_server
