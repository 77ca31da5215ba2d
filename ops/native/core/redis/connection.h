// One connection to a Redis node that never blocks.
#pragma once

#include <memory>
#include <string>

#include "core/redis/replies.h"
#include "core/redis/topology.h"

struct redisContext;

namespace hotrow {

class RedisConnection {
 public:
  // Begins to connect. ip: of address.host; ignored for a Unix socket. Fails with Unavailable.
  RedisConnection(const RedisAddress& address, const std::string& ip);
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  int fd() const;
  bool is_connecting() const { return connecting_; }
  // What is to be sent. While it is not all sent, the socket is to be polled for writing.
  std::string* output() { return &output_; }
  bool has_output() const { return sent_ < output_.size(); }
  RedisReplies* replies() { return &replies_; }

  // Both return "" or what went wrong; then the connection is of no use any more.
  // Sends what the socket takes, after the end of connecting when it was ready.
  std::string flush();
  // Reads what has arrived, up to some size, and hands it to replies(). *bytes: how many; 0: none
  // were there. *full: there may be more.
  std::string receive(size_t* bytes, bool* full);

 private:
  std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
  bool connecting_ = true;
  std::string output_;
  size_t sent_ = 0;
  std::unique_ptr<char[]> input_;
  RedisReplies replies_;
};

}  // namespace hotrow
