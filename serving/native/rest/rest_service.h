// TensorFlow Serving's REST API, and what it has not: the list of models, health, the page of
// metrics.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "http/message.h"
#include "http/turns.h"
#include "service/inference.h"
#include "service/statuses.h"

namespace hotrow_server {

struct RestOptions {
  std::chrono::milliseconds run;  // longest run of a model
  size_t max_body_bytes;          // uncompressed
  bool cors;                      // whether browsers of other sites may read replies
  std::string metrics_path;       // empty: no page
  bool metrics_elsewhere;         // the path says that the admin port has the page
};

class RestService final : public HttpHandler {
 public:
  // All must outlive it. parses, runs: turns of large bodies, and of long runs.
  RestService(const Inference& inference, const CurrentStatuses* statuses,
              grpc::GenericStub* backend, Turns* parses, Turns* runs, RestOptions options)
      : inference_(inference),
        statuses_(statuses),
        backend_(backend),
        parses_(parses),
        runs_(runs),
        options_(std::move(options)) {}

  void answer(HttpRequest* request, HeldBytes* held, Done done) override;

 private:
  HttpReply metrics() const;
  HttpReply ready() const;
  // A reply that browsers may read.
  HttpReply api_reply(int status, std::string body) const;

  const Inference inference_;
  const CurrentStatuses* const statuses_;
  grpc::GenericStub* const backend_;
  Turns* const parses_;
  Turns* const runs_;
  const RestOptions options_;
  mutable std::atomic<int> pages_{0};
};

// The HTTP status of a code of gRPC.
int http_status(grpc::StatusCode code);

}  // namespace hotrow_server
