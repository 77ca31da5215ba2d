// How the public server listens: addresses, TLS, gRPC's own arguments, health and reflection.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <vector>

#include "hotrow/protos/control.pb.h"
#include "service/reflection.h"

namespace hotrow_server {

class Listening {
 public:
  explicit Listening(const hotrow::ListenRequest& request)
      : request_(request), sockets_(request.socket_paths_size()) {}
  // Call it before the server is built; this object must not move until then.
  void prepare(grpc::ServerBuilder* builder);
  // server: the built server, or null. Fails with UNAVAILABLE and names the address that it cannot
  // listen on.
  void check(grpc::Server* server) const;
  int port() const { return port_; }

 private:
  const hotrow::ListenRequest& request_;
  ListedServices listed_;
  // The port on which gRPC listens; 0: none.
  int port_ = 0;
  std::vector<int> sockets_;
};

}  // namespace hotrow_server
