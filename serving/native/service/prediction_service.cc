#include "service/prediction_service.h"

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <numeric>

#include "wire/answer.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;

constexpr std::string_view kService = "/tensorflow.serving.PredictionService/";
// In the order of Method.
constexpr std::array<const char*, 5> kMethods = {"Predict", "Classify", "Regress", "MultiInference",
                                                 "GetModelMetadata"};

// The fields of a PredictionLog, for the methods before GetModelMetadata.
constexpr std::array<int, 4> kLogFields = {6, 2, 3, 4};

// Trailing metadata: how many lookups of the request got default rows because the store could not
// be read, and how many got rows that may be old because the store cannot be followed.
constexpr char kDefaultRows[] = "x-hotrow-default-rows";
constexpr char kStaleRows[] = "x-hotrow-stale-rows";

// Metadata of the REST gateway: how long the run may take. Its call waits a little longer, to
// receive TensorFlow's error.
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

void log_request(PredictionService::Method method, const Routes::Route& way,
                 const RequestFacts& facts, const grpc::ByteBuffer& request,
                 const grpc::ByteBuffer& reply) {
  // Several signatures answer a MultiInferenceRequest.
  const bool several = method == PredictionService::Method::kMultiInference;
  way.log->add(kLogFields[static_cast<size_t>(method)],
               {way.version, several ? "" : facts.signature, way.servable->request().tags()},
               request, reply);
}

// The fetches of a run for the answer's metadata: names of metadata, and tensors.
using Counts = std::vector<std::pair<const char*, TF_Output>>;

Counts counts_of(const Servable& servable, const std::vector<std::string>& signatures) {
  const bool defaults = servable.request().rows().default_on_failure(), stale = servable.stale();
  Counts fetched;
  // Signatures may have a lookup in common, which then counts for all of them.
  const auto add = [&fetched](const char* name, const TF_Output& counts) {
    if (counts.oper == nullptr) return;
    for (const auto& [known, output] : fetched) {
      if (known == name && same(output, counts)) return;
    }
    fetched.emplace_back(name, counts);
  };
  if (!defaults && !stale) return fetched;
  for (const std::string& name : signatures) {
    const Signature* const signature = servable.signature(name);
    if (signature == nullptr) continue;
    if (defaults) add(kDefaultRows, signature->default_rows());
    if (stale) add(kStaleRows, signature->stale_rows());
  }
  return fetched;
}

// results: of a run whose last fetches are the counts, int32, of each sample.
void add_metadata(const Counts& fetched, const Results& results, grpc::ServerContext* context) {
  for (const char* const name : {kDefaultRows, kStaleRows}) {
    int64_t total = 0;
    for (size_t i = 0; i < fetched.size(); ++i) {
      if (fetched[i].first != name) continue;
      const TF_Tensor* const counts = results[results.size() - fetched.size() + i];
      const auto* const values = static_cast<const int32_t*>(TF_TensorData(counts));
      total = std::accumulate(values, values + TF_TensorElementCount(counts), total);
    }
    if (total > 0) context->AddTrailingMetadata(name, std::to_string(total));
  }
}

template <typename Message>
Message parse(grpc::ByteBuffer* buffer) {
  Message message;
  grpc::ProtoBufferReader reader(buffer);
  if (!reader.status().ok() || !message.ParseFromZeroCopyStream(&reader)) refuse_unparsed();
  return message;
}

void serialize(const google::protobuf::Message& message, grpc::ByteBuffer* buffer) {
  bool own = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, buffer,
                                                                                 &own);
  if (!status.ok()) throw Refused(status.error_code(), status.error_message());
}

// The results of a run. The message of an op that refused an input names neither the input nor the
// model's shape: `undeclared`, of plan_predict, names both.
const Results& results_of(const Outcome& outcome, const std::string& undeclared) {
  if (undeclared.empty()) return outcome.get();
  try {
    return outcome.get();
  } catch (const Refused& refused) {
    if (refused.code() != grpc::StatusCode::INVALID_ARGUMENT) throw;
    const std::string message = refused.what();
    if (message.find("{{node ") == std::string::npos) throw;  // an error of the batcher, say
    throw Refused(refused.code(), message + "\n\t (" + undeclared + ")");
  }
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
  const grpc::Status planned = hotrow_server::answer(*context, [&] {
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
    done(planned);
    return;
  }
  std::string undeclared = std::move(to_run.run.undeclared);
  to_run.run.deadline = deadline_of(*context);
  const std::shared_ptr<const Servable> servable = to_run.way.servable;
  Counts fetched = counts_of(*servable, to_run.signatures);
  for (const auto& [metadata, counts] : fetched) to_run.run.fetches.push_back(counts);
  servable->run(
      std::move(to_run.run),
      // Keeps the route, too: it holds the servable.
      [context, fetched = std::move(fetched), done = std::move(done), way = std::move(to_run.way),
       make_reply = std::move(to_run.reply), method, request, reply, facts,
       undeclared = std::move(undeclared), started = Stopwatch::now()](const Outcome& outcome) {
        done(hotrow_server::answer(*context, [&] {
          const Results& results = results_of(outcome, undeclared);
          add_metadata(fetched, results, context);
          count_run(*facts, micros_since(started));
          make_reply(results);
          if (way.log != nullptr) log_request(method, way, *facts, *request, *reply);
        }));
      });
}

}  // namespace hotrow_server
