#include "service/prediction_service.h"

#include <algorithm>
#include <array>

#include "service/answering.h"
#include "service/messages.h"
#include "wire/answer.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;

constexpr std::string_view kService = "/tensorflow.serving.PredictionService/";
// In the order of Method.
constexpr std::array<const char*, 5> kMethods = {"Predict", "Classify", "Regress", "MultiInference",
                                                 "GetModelMetadata"};

// For the methods before GetModelMetadata.
constexpr std::array<LogField, 4> kLogFields = {LogField::kPredict, LogField::kClassify,
                                                LogField::kRegress, LogField::kMultiInference};

Deadline deadline_of(const grpc::ServerContext& context) {
  const Clock::time_point deadline = context.deadline();
  if (deadline == Clock::time_point::max()) return std::nullopt;
  return deadline;
}

// A run, and the function that handles its results.
template <typename Request, typename Response>
Plan plan(const Inference& inference,
          Plan (Inference::*method)(const Request&, RequestFacts*, Response*) const,
          grpc::ByteBuffer* request, RequestFacts* facts, grpc::ByteBuffer* reply) {
  const auto response = std::make_shared<Response>();
  Plan plan = (inference.*method)(parse<Request>(request), facts, response.get());
  plan.reply = [response, reply, inner = std::move(plan.reply)](const Results& results) {
    inner(results);
    serialize(*response, reply);
  };
  return plan;
}

}  // namespace

std::optional<PredictionService::Method> PredictionService::method(const std::string& path) {
  if (!path.starts_with(kService)) return std::nullopt;
  const std::string_view name = std::string_view(path).substr(kService.size());
  const auto found = std::find(kMethods.begin(), kMethods.end(), name);
  if (found == kMethods.end()) return std::nullopt;
  return static_cast<Method>(found - kMethods.begin());
}

const char* PredictionService::name(Method method) { return kMethods[static_cast<size_t>(method)]; }

void PredictionService::answer(Method method, grpc::ServerContext* context,
                               grpc::ByteBuffer* request, grpc::ByteBuffer* reply,
                               RequestFacts* facts, Done done) const {
  Plan to_run;
  const grpc::Status planned = status_of([&] {
    switch (method) {
      case Method::kPredict:
        to_run = inference_.predict(request, facts, reply);
        return;
      case Method::kClassify:
        to_run = plan(inference_, &Inference::classify, request, facts, reply);
        return;
      case Method::kRegress:
        to_run = plan(inference_, &Inference::regress, request, facts, reply);
        return;
      case Method::kMultiInference:
        to_run = plan(inference_, &Inference::multi_inference, request, facts, reply);
        return;
      case Method::kGetModelMetadata: {
        serving::GetModelMetadataResponse response;
        inference_.metadata(parse<serving::GetModelMetadataRequest>(request), facts, &response);
        serialize(response, reply);
        return;
      }
    }
  });
  if (!planned.ok() || method == Method::kGetModelMetadata) {
    done(for_client(planned));
    return;
  }
  if (to_run.way.log != nullptr) {
    to_run.log = [method, way = to_run.way, facts, request, reply] {
      log_answer(kLogFields[static_cast<size_t>(method)], way, *facts, *request, *reply);
    };
  }
  answer_plan(
      std::move(to_run), deadline_of(*context), facts,
      [context, done = std::move(done)](const grpc::Status& status, const Metadata& metadata) {
        for (const auto& [name, value] : metadata) {
          context->AddTrailingMetadata(name, value);
        }
        done(for_client(status));
      });
}

}  // namespace hotrow_server
