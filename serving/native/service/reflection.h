// Server reflection: clients such as grpcurl list services and the schemas of their messages.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <vector>

namespace hotrow_server {

// Keep it until the server has ended.
using ListedServices = std::vector<std::unique_ptr<grpc::Service>>;

// Call it before the server is built. on: false disables reflection, which gRPC would enable by
// itself.
ListedServices prepare_reflection(bool on, grpc::ServerBuilder* builder);

}  // namespace hotrow_server
