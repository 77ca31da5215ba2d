// One connection to a Redis node that never blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/redis/replies.h"
#include "core/redis/tls.h"
#include "core/redis/topology.h"

struct redisContext;

namespace hotrow {

// Watermarks of shards that were read over a connection. A node that goes back in time, restarted
// from an earlier state, ends its connections, so as long as one lives, what was read over it still
// holds. One that follows a replica that was behind keeps them: when a node has answered MOVED, all
// watermarks are read again.
struct RedisMarks {
  uint64_t round = 0;              // of RedisFence: they hold in no other
  std::vector<uint64_t> of_shard;  // (V); 0: not read
};

class RedisConnection {
 public:
  // Starts connecting. ip: the address of address.host; ignored for a Unix socket. tls: null for
  // plain text. Fails with Unavailable.
  RedisConnection(const RedisAddress& address, const std::string& ip, RedisTls* tls);
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  int fd() const;
  // Until the node, and with TLS its certificate, are there.
  bool is_connecting() const { return state_ != State::kOpen; }
  // What to poll the socket for (poll.h).
  short events() const;
  // Bytes to send.
  std::string* output() { return &output_; }
  bool has_output() const { return sent_ < output_.size(); }
  RedisReplies* replies() { return &replies_; }
  RedisMarks* marks() { return &marks_; }

  // Both return "" or an error message; after an error the connection cannot be used. `flush` sends
  // what the socket takes; it first goes on connecting if the socket is ready.
  std::string flush();
  // Reads the bytes that have arrived, up to some size, and passes them to replies(). *bytes: how
  // many; 0: none were there. *full: there may be more.
  std::string receive(size_t* bytes, bool* full);

 private:
  enum class State { kConnecting, kReadsHandshake, kWritesHandshake, kOpen };

  std::string go_on_connecting();
  std::string shake_hands();
  ptrdiff_t send_some(const char* data, size_t bytes, std::string* why);
  ptrdiff_t receive_some(char* data, size_t bytes, std::string* why);

  std::unique_ptr<redisContext, void (*)(redisContext*)> context_;
  std::unique_ptr<TlsSession> tls_;  // null: plain text
  State state_ = State::kConnecting;
  std::string output_;
  size_t sent_ = 0;
  std::unique_ptr<char[]> input_;
  RedisReplies replies_;
  RedisMarks marks_;
};

}  // namespace hotrow
