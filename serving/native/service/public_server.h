// The gRPC server on the public ports.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <vector>

#include "base/workers.h"
#include "hotrow/protos/control.pb.h"
#include "service/call.h"
#include "service/listening.h"

namespace hotrow_server {

class PublicServer {
 public:
  // Listens at once. Fails with UNAVAILABLE when a port is taken or not allowed. The budget, of all
  // requests under way, must outlive it.
  PublicServer(const hotrow::ListenRequest& request, const CurrentRoutes& routes,
               const CurrentStatuses* statuses, MemoryBudget* budget);
  const hotrow::ListenRequest& request() const { return request_; }
  int port() const { return listening_.port(); }
  // Takes no new call; returns when running calls have ended, or were cancelled at the deadline.
  // Health watchers are notified but not waited for: they never end. The process ends then, and
  // nothing is destroyed while threads use it.
  void drain(Clock::time_point deadline);

 private:
  hotrow::ListenRequest request_;
  Listening listening_;
  Reception reception_;
  // gRPC gives each connection to one of the queues.
  struct Lane {
    std::unique_ptr<grpc::ServerCompletionQueue> queue;
    std::unique_ptr<EventSource> events;
    std::unique_ptr<Workers> workers;
  };
  std::vector<Lane> lanes_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace hotrow_server
