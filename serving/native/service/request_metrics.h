// Counts requests as TF Serving does, and also by version and signature.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <string>

namespace hotrow_server {

using Stopwatch = std::chrono::steady_clock;

inline int64_t micros_since(Stopwatch::time_point started) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Stopwatch::now() - started).count();
}

// The facts of a request that metrics need; filled in as they become known.
struct RequestFacts {
  const char* api;  // "Predict", ...; over REST, "" for what has no method of gRPC
  bool rest;        // else gRPC
  std::string model;
  // Of the servable that answers; empty while there is none: names from clients must not become
  // labels.
  std::string version, signature;
  int64_t examples = -1;  // tf.Examples in it; -1: it has none
  Stopwatch::time_point started = Stopwatch::now();

  RequestFacts(const char* api, bool rest) : api(api), rest(rest) {}
};

// As in labels: "OK", "INVALID_ARGUMENT", ...
const char* code_name(grpc::StatusCode code);

// Counts a request that has ended.
void count_request(const RequestFacts& request, grpc::StatusCode code);

// Counts a run of TensorFlow for a request.
void count_run(const RequestFacts& request, int64_t micros);

}  // namespace hotrow_server
