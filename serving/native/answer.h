// From what a call throws to the status that its client gets.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <exception>
#include <new>
#include <string>

#include "refused.h"

namespace hotrow_server {

// A longer message is cut here, as TF Serving's grpc_status_util.cc does.
inline std::string cut_message(std::string message) {
  constexpr size_t kMost = 1024;
  if (message.size() > kMost) message = message.substr(0, kMost) + "...TRUNCATED";
  return message;
}

// Metadata of a caller that wants whole messages: the REST gateway's.
inline constexpr char kWholeMessages[] = "x-hotrow-whole-messages";

template <typename Work>
grpc::Status answer(const grpc::ServerContext& context, Work&& work) {
  grpc::StatusCode code;
  std::string message;
  try {
    work();
    return grpc::Status::OK;
  } catch (const Refused& refused) {
    code = refused.code();
    message = refused.what();
  } catch (const std::bad_alloc&) {
    code = grpc::StatusCode::RESOURCE_EXHAUSTED;
    message = "no memory for this request";
  } catch (const std::exception& error) {
    code = grpc::StatusCode::INTERNAL;
    message = error.what();
  }
  const auto& metadata = context.client_metadata();
  const bool whole = metadata.find(kWholeMessages) != metadata.end();
  return {code, whole ? message : cut_message(message)};
}

}  // namespace hotrow_server
