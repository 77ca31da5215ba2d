#include "service/request_metrics.h"

#include "base/metrics.h"

namespace hotrow_server {
namespace {

Counters request_count(":tensorflow:serving:request_count", {"model_name", "status"});
Histograms request_latency(":tensorflow:serving:request_latency",
                           {"model_name", "API", "entrypoint"}, latency_buckets());
Histograms runtime_latency(":tensorflow:serving:runtime_latency", {"model_name", "API", "runtime"},
                           latency_buckets());
Histograms example_counts(":tensorflow:serving:request_example_counts", {"model"},
                          exponential_buckets(1, 2, 15));
Counters example_count_total(":tensorflow:serving:request_example_count_total", {"model"});

// Our own: by version and signature.
Counters requests("hotrow_requests_total",
                  {"model_name", "version", "signature_name", "API", "entrypoint", "status"});
Histograms latency("hotrow_request_latency_microseconds",
                   {"model_name", "version", "signature_name", "API", "entrypoint"},
                   latency_buckets());

// True except for MultiInference and GetModelMetadata.
bool counted_by_tf_serving(std::string_view api) {
  return api == "Predict" || api == "Classify" || api == "Regress";
}

// The method of a REST path: "predict", "classify", "regress", or "".
std::string rest_method(std::string_view api) {
  if (!counted_by_tf_serving(api)) return "";
  std::string method(api);
  method[0] = static_cast<char>(std::tolower(method[0]));
  return method;
}

}  // namespace

const char* code_name(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return kNames[code];
}

void count_request(const RequestFacts& request, grpc::StatusCode code) {
  const auto& [api, rest, model, version, signature, examples, started] = request;
  const char* const entrypoint = rest ? "REST" : "GRPC";
  const auto micros = static_cast<double>(micros_since(started));
  const bool ok = code == grpc::StatusCode::OK;
  if (*api != 0) requests.at({model, version, signature, api, entrypoint, code_name(code)}).add();
  if (ok && *api != 0) {
    latency.at({model, version, signature, api, entrypoint}).add(micros);
    if (examples >= 0) {
      example_counts.at({model}).add(static_cast<double>(examples));
      example_count_total.at({model}).add(examples);
    }
  }
  if (!rest && !counted_by_tf_serving(api)) return;
  request_count.at({model, code_name(code)}).add();
  if (ok) request_latency.at({model, rest ? rest_method(api) : api, entrypoint}).add(micros);
}

void count_run(const RequestFacts& request, int64_t micros) {
  if (!counted_by_tf_serving(request.api)) return;
  runtime_latency.at({request.model, request.api, "TF1"}).add(static_cast<double>(micros));
}

}  // namespace hotrow_server
