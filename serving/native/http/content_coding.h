// Compressed bodies: gzip and zstd, of requests and, when a client asks for it, of replies.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/refused.h"
#include "http/message.h"

namespace hotrow_server {

// A body is longer than the server takes; HTTP answers 413.
class BodyTooLong final : public Refused {
 public:
  explicit BodyTooLong(size_t most_bytes)
      : Refused(grpc::StatusCode::INVALID_ARGUMENT, too_long(most_bytes)) {}
};

// A request's body uncompressed; nothing for a coding that is unknown, which TensorFlow Serving
// takes for none. coding: the Content-Encoding. most_bytes: limit of the uncompressed body; no more
// is written than that and a part of 64 KiB. Fails with INVALID_ARGUMENT when the body is not in
// this coding, and with BodyTooLong.
std::optional<Body> uncompressed(std::string_view body, std::string_view coding, size_t most_bytes);

// Compresses a reply's body if that is worth it. accepted: the request's Accept-Encoding. Returns
// the Content-Encoding, or null for none.
const char* compress(std::string* body, std::string_view accepted);

}  // namespace hotrow_server
