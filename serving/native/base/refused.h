// The error of a refused request.
#pragma once

#include <grpcpp/support/status.h>

#include <stdexcept>
#include <string>

namespace hotrow_server {

class Refused : public std::runtime_error {
 public:
  Refused(grpc::StatusCode code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  grpc::StatusCode code() const { return code_; }

 private:
  grpc::StatusCode code_;
};

[[noreturn]] inline void refuse(const std::string& message) {
  throw Refused(grpc::StatusCode::INVALID_ARGUMENT, message);
}

[[noreturn]] inline void refuse_unparsed() {
  throw Refused(grpc::StatusCode::INTERNAL, "the request is no message of this method");
}

}  // namespace hotrow_server
