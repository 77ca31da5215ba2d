#include "core/redis/node.h"

#include <string_view>

#include "core/base/status.h"
#include "core/redis/resolve_host.h"

namespace hotrow {

void append_command(std::initializer_list<std::string_view> parts, std::string* out) {
  *out += "*" + std::to_string(parts.size()) + "\r\n";
  for (const std::string_view part : parts) {
    *out += "$" + std::to_string(part.size()) + "\r\n";
    out->append(part);
    *out += "\r\n";
  }
}

std::unique_ptr<RedisConnection> RedisNode::take_idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (idle_.empty()) return nullptr;
  std::unique_ptr<RedisConnection> connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

void RedisNode::give_back(std::unique_ptr<RedisConnection> connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (idle_.size() < options_.most_reads) idle_.push_back(std::move(connection));
}

void RedisNode::drop_idle() {
  std::vector<std::unique_ptr<RedisConnection>> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  dropped.swap(idle_);
}

size_t RedisNode::idle() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return idle_.size();
}

std::unique_ptr<RedisConnection> RedisNode::connect(Time deadline, size_t* greetings) {
  connects.fetch_add(1, std::memory_order_relaxed);
  std::string ip;
  if (address_.path.empty()) {
    const std::vector<std::string> addresses = resolve_host(address_.host, deadline);
    const std::lock_guard<std::mutex> lock(mutex_);
    ip = addresses[attempts_++ % addresses.size()];
  }
  *greetings = 0;
  auto connection = std::make_unique<RedisConnection>(address_, ip, tls_.get());
  if (!options_.username.empty()) {  // the user may have no password
    append_command({"AUTH", options_.username, options_.password}, connection->output());
    ++*greetings;
  } else if (!options_.password.empty()) {
    append_command({"AUTH", options_.password}, connection->output());
    ++*greetings;
  }
  if (options_.database != 0) {
    append_command({"SELECT", std::to_string(options_.database)}, connection->output());
    ++*greetings;
  }
  return connection;
}

}  // namespace hotrow
