// A Redis node as its readers share it: idle connections, circuit breaker, counters.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/redis/circuit_breaker.h"
#include "core/redis/connection.h"
#include "core/redis/topology.h"

namespace hotrow {

struct RedisOptions {
  std::string username;  // empty: AUTH sends the password alone
  std::string password;  // empty: no AUTH
  int database = 0;
  std::chrono::milliseconds connect_timeout{500};  // also for a probe's answer
  std::chrono::milliseconds silence{800};          // after this, a node counts as failed
  size_t most_reads = 32;  // at a time, each with a connection a node; others wait
  CircuitBreaker::Options breaker;
};

class RedisNode {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // tls: null for plain text.
  RedisNode(RedisAddress address, std::shared_ptr<RedisTls> tls, const RedisOptions& options)
      : address_(std::move(address)),
        tls_(std::move(tls)),
        options_(options),
        breaker_(options.breaker) {}

  const RedisAddress& address() const { return address_; }
  CircuitBreaker* breaker() { return &breaker_; }

  // The connection that was returned last; null: there is none.
  std::unique_ptr<RedisConnection> take_idle();
  // Takes a connection without awaited replies.
  void give_back(std::unique_ptr<RedisConnection> connection);
  void drop_idle();
  size_t idle() const;
  // Starts connecting; AUTH and SELECT are sent first. *greetings: how many replies they get. Fails
  // with Unavailable.
  std::unique_ptr<RedisConnection> connect(Time deadline, size_t* greetings);

  std::atomic<uint64_t> connects{0}, failures{0}, commands{0}, bytes_in{0};

 private:
  const RedisAddress address_;
  const std::shared_ptr<RedisTls> tls_;
  const RedisOptions& options_;
  CircuitBreaker breaker_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<RedisConnection>> idle_;
  size_t attempts_ = 0;  // connections made: each tries the host's next address
};

// Writes a command to `out`: parts become bulk strings.
void append_command(std::initializer_list<std::string_view> parts, std::string* out);

}  // namespace hotrow
