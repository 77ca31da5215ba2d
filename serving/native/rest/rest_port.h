// The REST port: the HTTP server, and what answers its requests.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <memory>

#include "base/memory_budget.h"
#include "http/server.h"
#include "http/turns.h"
#include "rest/rest_service.h"

namespace hotrow_server {

class RestPort {
 public:
  // Listens at once; connections wait until `begin`. request: with `rest`. Fails as HttpServer. The
  // others must outlive it.
  RestPort(const hotrow::ListenRequest& request, const CurrentRoutes& routes,
           const CurrentStatuses* statuses, MemoryBudget* budget);

  void begin();
  // Takes no new request.
  void end();
  // Waits for running requests; for those over at the deadline, no longer.
  void wait_until_ended(Clock::time_point deadline) const;

 private:
  const std::unique_ptr<grpc::GenericStub> backend_;
  Turns parses_, runs_;
  RestService service_;
  HttpServer server_;
};

}  // namespace hotrow_server
