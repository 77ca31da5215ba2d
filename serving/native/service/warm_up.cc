#include "service/warm_up.h"

#include <chrono>

#include "base/metrics.h"
#include "base/refused.h"
#include "service/inference.h"
#include "tensorflow_serving/apis/predict.pb.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;

// The latency of requests from files; requests of zeros are not counted.
Histograms warm_up_latency(":tensorflow:serving:model_warmup_latency", {"model_path", "status"},
                           latency_buckets());
Counters records_read(":tensorflow:serving:model_warmup_records_read", {"model_path"});

// The deadline of a run with zeros: the server does not wait longer for a slow model.
constexpr std::chrono::milliseconds kZerosTime(1000);
// The first run initializes, the second shows how long later runs take.
constexpr int kZerosRuns = 2;

// Answers a request and drops the reply.
template <typename Request, typename Response>
Plan planned(const Inference& inference,
             Plan (Inference::*method)(const Request&, RequestFacts*, Response*) const,
             const std::string& bytes, RequestFacts* facts) {
  Request request;
  if (!request.ParseFromString(bytes)) refuse_unparsed();
  const auto response = std::make_shared<Response>();
  Plan plan = (inference.*method)(request, facts, response.get());
  plan.reply = [response, inner = std::move(plan.reply)](const Results& results) {
    inner(results);
  };
  return plan;
}

Plan plan_of(const hotrow::WarmUp::Request& request, const Inference& inference,
             grpc::ByteBuffer* reply) {
  RequestFacts facts("", false);  // not counted
  switch (request.method()) {
    case hotrow::WarmUp::CLASSIFY:
      return planned(inference, &Inference::classify, request.request(), &facts);
    case hotrow::WarmUp::REGRESS:
      return planned(inference, &Inference::regress, request.request(), &facts);
    case hotrow::WarmUp::MULTI_INFERENCE:
      return planned(inference, &Inference::multi_inference, request.request(), &facts);
    default: {
      const grpc::Slice slice(request.request());
      grpc::ByteBuffer buffer(&slice, 1);
      return inference.predict(&buffer, &facts, reply);
    }
  }
}

void answer_once(const hotrow::WarmUp::Request& request, const Inference& inference,
                 Deadline deadline) {
  grpc::ByteBuffer reply;
  Plan plan = plan_of(request, inference, &reply);
  plan.run.deadline = deadline;
  plan.reply(plan.way.servable->run_alone(plan.run));
}

// Zeros or empty strings for all inputs: one row, and size 1 for undeclared dimensions.
hotrow::WarmUp::Request zeros(const std::string& model, const Signature& signature) {
  serving::PredictRequest request;
  request.mutable_model_spec()->set_name(model);
  request.mutable_model_spec()->set_signature_name(signature.name());
  for (const auto& [alias, info] : signature.def().inputs()) {
    tensorflow::TensorProto& tensor = (*request.mutable_inputs())[alias];
    tensor.set_dtype(info.dtype());
    for (const auto& dim : info.tensor_shape().dim()) {
      tensor.mutable_tensor_shape()->add_dim()->set_size(dim.size() < 0 ? 1 : dim.size());
    }
    if (info.tensor_shape().unknown_rank()) tensor.mutable_tensor_shape()->add_dim()->set_size(1);
  }
  hotrow::WarmUp::Request warm_up;
  warm_up.set_request(request.SerializeAsString());
  return warm_up;
}

void answer_file(const hotrow::LoadRequest& load, const Inference& inference) {
  const Stopwatch::time_point started = Stopwatch::now();
  const auto count = [&](grpc::StatusCode code) {
    warm_up_latency.at({load.path(), code_name(code)})
        .add(static_cast<double>(micros_since(started)));
  };
  try {
    for (const hotrow::WarmUp::Request& request : load.warm_up().requests()) {
      records_read.at({load.path()}).add();
      for (int run = 0; run < request.runs(); ++run) answer_once(request, inference, std::nullopt);
    }
  } catch (const Refused& refused) {
    count(refused.code());
    throw;
  }
  count(grpc::StatusCode::OK);
}

void answer_zeros(const std::string& model, const Servable& servable, const Inference& inference) {
  for (const std::string& name : servable.pure_signatures()) {
    try {
      const hotrow::WarmUp::Request request = zeros(model, *servable.signature(name));
      for (int run = 0; run < kZerosRuns; ++run) {
        answer_once(request, inference, Clock::now() + kZerosTime);
      }
    } catch (const Refused&) {
      // Ignored: it only saves the first clients time.
    }
  }
}

}  // namespace

void warm_up(const hotrow::LoadRequest& load, const std::shared_ptr<Servable>& servable) {
  hotrow::Routes table;
  auto* const model = table.add_models();
  model->set_name(load.model());
  auto* const version = model->add_versions();
  version->set_version(load.version());
  version->set_servable(load.servable());
  CurrentRoutes routes;
  routes.set(std::make_shared<const Routes>(table, Routes::Servables{{load.servable(), servable}}));
  const Inference inference(routes, {});
  if (!load.warm_up().requests().empty()) answer_file(load, inference);
  if (load.warm_up().zeros()) answer_zeros(load.model(), *servable, inference);
}

}  // namespace hotrow_server
