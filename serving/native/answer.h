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

inline bool from_gateway(const grpc::ServerContext& context) {
  return context.client_metadata().contains(kWholeMessages);
}

template <typename Work>
grpc::Status status_of(Work&& work) {
  try {
    work();
    return grpc::Status::OK;
  } catch (const Refused& refused) {
    return {refused.code(), refused.what()};
  } catch (const std::bad_alloc&) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "no memory for this request"};
  } catch (const std::exception& error) {
    return {grpc::StatusCode::INTERNAL, error.what()};
  }
}

template <typename Work>
grpc::Status answer(const grpc::ServerContext& context, Work&& work) {
  const grpc::Status status = status_of(work);
  if (status.ok() || from_gateway(context)) return status;
  return {status.error_code(), cut_message(status.error_message())};
}

}  // namespace hotrow_server
