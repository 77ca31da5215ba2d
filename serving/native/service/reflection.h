// Server reflection: clients such as grpcurl ask which services there are and what their messages
// look like.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <vector>

namespace hotrow_server {

// To be kept until the server has ended.
using ListedServices = std::vector<std::unique_ptr<grpc::Service>>;

// Before the server is built. on: else there is none, though gRPC would bring it by itself.
ListedServices prepare_reflection(bool on, grpc::ServerBuilder* builder);

}  // namespace hotrow_server
