// The control process as a gRPC server: it answers what this process does not.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

namespace hotrow_server {

// A channel to its address.
std::unique_ptr<grpc::GenericStub> backend_at(const std::string& address);

// The page of all metrics, for Prometheus. Waits for it. Fails with Refused: UNAVAILABLE when no
// control process runs, DEADLINE_EXCEEDED when it does not answer.
std::string metrics_page(grpc::GenericStub* backend);

}  // namespace hotrow_server
