// Calls of services that the control process answers, on the same port: ModelService, health,
// reflection. One message each way.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

namespace hotrow_server {

class Forwarding final : public grpc::CallbackGenericService {
 public:
  // backend: a gRPC address. While nobody is there, calls fail with UNAVAILABLE.
  explicit Forwarding(const std::string& backend);

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  grpc::GenericStub stub_;
};

}  // namespace hotrow_server
