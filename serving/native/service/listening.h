// Where and how the public server listens: addresses, TLS, gRPC's own arguments, health and
// reflection.
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
  // Before the server is built, and until then this stays where it is.
  void prepare(grpc::ServerBuilder* builder);
  // server: what was built, or null. Fails with UNAVAILABLE, and says which address it cannot
  // listen on.
  void check(grpc::Server* server) const;
  int port() const { return port_; }

 private:
  const hotrow::ListenRequest& request_;
  ListedServices listed_;
  // What gRPC listens on: 0 where it does not.
  int port_ = 0;
  std::vector<int> sockets_;
};

}  // namespace hotrow_server
