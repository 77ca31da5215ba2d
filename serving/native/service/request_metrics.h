// Requests as TF Serving counts them, and beside that by version and signature.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <string>

namespace hotrow_server {

using Stopwatch = std::chrono::steady_clock;

inline int64_t micros_since(Stopwatch::time_point started) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Stopwatch::now() - started).count();
}

// What the metrics have to know of a request; filled in as it becomes known.
struct RequestFacts {
  const char* api;  // "Predict", ...
  bool rest;        // it came by the gateway, which counts for itself what TF Serving counts
  std::string model;
  // Of what answers, empty while there is none: names that clients make up are no labels.
  std::string version, signature;
  int64_t examples = -1;  // tf.Examples in it; -1: it has none
  Stopwatch::time_point started = Stopwatch::now();

  RequestFacts(const char* api, bool rest) : api(api), rest(rest) {}
};

// As in labels: "OK", "INVALID_ARGUMENT", ...
const char* code_name(grpc::StatusCode code);

// A request has ended.
void count_request(const RequestFacts& request, grpc::StatusCode code);

// A run of TensorFlow for a request.
void count_run(const RequestFacts& request, int64_t micros);

}  // namespace hotrow_server
