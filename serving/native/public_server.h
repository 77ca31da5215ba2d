// The gRPC server on the public ports.
#pragma once

#include <grpcpp/server.h>

#include <memory>

#include "forwarding.h"
#include "hotrow/protos/control.pb.h"
#include "prediction_service.h"

namespace hotrow_server {

class PublicServer {
 public:
  // Listens at once. Fails with UNAVAILABLE when a port is taken or not allowed.
  PublicServer(const hotrow::ListenRequest& request, const CurrentRoutes& routes);
  const hotrow::ListenRequest& request() const { return request_; }
  int port() const { return port_; }
  // Takes no new call; returns when the running ones have ended, or were broken off at the
  // deadline.
  void drain(Clock::time_point deadline) { server_->Shutdown(deadline); }

 private:
  hotrow::ListenRequest request_;
  PredictionService prediction_;
  Forwarding forwarding_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace hotrow_server
