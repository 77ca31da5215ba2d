// A request over HTTP and its reply.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory_budget.h"

namespace hotrow_server {

// Bytes that grow, in memory that is not set before; kPadding bytes behind them can be read.
class Body {
 public:
  static constexpr size_t kPadding = 64;

  Body() = default;
  Body(Body&& other) noexcept { *this = std::move(other); }
  Body& operator=(Body&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~Body() { std::free(data_); }

  size_t size() const { return size_; }
  std::string_view view() const { return {data_, size_}; }
  // The memory behind the bytes, at least `least` of them.
  char* reserve(size_t least) {
    if (capacity_ < size_ + least + kPadding) {
      const size_t wanted = std::max(size_ + least, 2 * size_) + kPadding;
      auto* const larger = static_cast<char*>(std::realloc(data_, wanted));
      if (larger == nullptr) throw std::bad_alloc();
      data_ = larger;
      capacity_ = wanted;
    }
    return data_ + size_;
  }
  size_t reserved() const { return capacity_ < kPadding ? 0 : capacity_ - kPadding - size_; }
  // Bytes that were written to reserved memory.
  void commit(size_t bytes) { size_ += bytes; }
  void append(std::string_view bytes) {
    std::copy(bytes.begin(), bytes.end(), reserve(bytes.size()));
    commit(bytes.size());
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

// The text for a body that is longer than the server takes.
inline std::string too_long(size_t most_bytes) {
  return "The request body is longer than " + std::to_string(most_bytes) +
         " bytes; send less at a time, or start the server with a larger --rest_api_max_body_bytes";
}

struct HttpRequest {
  std::string verb, target;  // as sent
  // Headers, empty if absent.
  std::string origin, content_encoding, accept_encoding;
  Body body;
};

struct HttpReply {
  using Headers = std::vector<std::pair<std::string, std::string>>;

  int status = 200;
  std::string body;
  const char* content_type = "application/json";
  Headers headers;
};

// Answers requests.
class HttpHandler {
 public:
  using Done = std::function<void(HttpReply)>;

  virtual ~HttpHandler() = default;
  // Called by a worker. `done` is called once, at once or later from another thread; the request
  // and `held`, which counts its bytes, live until then.
  virtual void answer(HttpRequest* request, HeldBytes* held, Done done) = 0;
};

}  // namespace hotrow_server
