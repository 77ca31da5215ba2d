// Converts a call's exception to the status that its client gets.
#pragma once

#include <grpcpp/support/status.h>

#include <exception>
#include <new>
#include <string>

#include "base/refused.h"
#include "base/utf8.h"

namespace hotrow_server {

// TensorFlow's messages may quote bytes of a request; clients expect text.
inline std::string as_text(std::string message) {
  if (is_utf8(message)) return message;
  for (char& byte : message) {
    if (static_cast<unsigned char>(byte) >= 0x80) byte = '?';
  }
  return message;
}

// A longer message is cut here, as TF Serving's grpc_status_util.cc does.
inline std::string cut_message(std::string message) {
  size_t most = 1024;
  if (message.size() <= most) return message;
  // Not in the middle of a character.
  while (most > 0 && (static_cast<unsigned char>(message[most]) & 0xC0) == 0x80) --most;
  return message.substr(0, most) + "...TRUNCATED";
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

// The status as gRPC's clients get it.
inline grpc::Status for_client(const grpc::Status& status) {
  if (status.ok()) return status;
  return {status.error_code(), cut_message(as_text(status.error_message()))};
}

}  // namespace hotrow_server
