// HTTP statuses of refused requests.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "rest/rest_service.h"

namespace hotrow_server {
namespace {

using grpc::StatusCode;

TEST_CASE("http_status: every gRPC code has TensorFlow Serving's HTTP status") {
  const std::vector<std::pair<StatusCode, int>> expected = {
      {StatusCode::OK, 200},
      {StatusCode::INVALID_ARGUMENT, 400},
      {StatusCode::FAILED_PRECONDITION, 400},
      {StatusCode::OUT_OF_RANGE, 400},
      {StatusCode::UNAUTHENTICATED, 401},
      {StatusCode::PERMISSION_DENIED, 403},
      {StatusCode::NOT_FOUND, 404},
      {StatusCode::ALREADY_EXISTS, 409},
      {StatusCode::ABORTED, 409},
      {StatusCode::RESOURCE_EXHAUSTED, 429},
      {StatusCode::CANCELLED, 499},
      {StatusCode::UNKNOWN, 500},
      {StatusCode::INTERNAL, 500},
      {StatusCode::DATA_LOSS, 500},
      {StatusCode::UNIMPLEMENTED, 501},
      {StatusCode::UNAVAILABLE, 503},
      {StatusCode::DEADLINE_EXCEEDED, 504},
  };
  for (const auto& [code, status] : expected) CHECK(http_status(code) == status);
}

}  // namespace
}  // namespace hotrow_server
