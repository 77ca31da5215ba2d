#include "core/redis/connection.h"

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "core/base/status.h"

namespace hotrow {
namespace {

// What Redis writes at a time.
constexpr size_t kInputBytes = 64 << 10;

std::string text_of(int error) {
  char buffer[128];
  return strerror_r(error, buffer, sizeof(buffer));  // GNU's: returns the text
}

bool is_momentary(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

RedisConnection::RedisConnection(const RedisAddress& address, const std::string& ip)
    : context_(address.path.empty() ? redisConnectNonBlock(ip.c_str(), address.port)
                                    : redisConnectUnixNonBlock(address.path.c_str()),
               redisFree) {
  if (context_ == nullptr) throw std::bad_alloc();
  if (context_->err != 0) fail(Code::kUnavailable, "%s", context_->errstr);
  fcntl(context_->fd, F_SETFD, FD_CLOEXEC);
  if (address.path.empty()) {
    // TCP keepalive detects a vanished peer between reads; the next read reports it, so failures
    // here are ignored.
    const int on = 1;
    setsockopt(context_->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  }
  input_.reset(new char[kInputBytes]);
}

RedisConnection::~RedisConnection() = default;

int RedisConnection::fd() const { return context_->fd; }

std::string RedisConnection::flush() {
  if (connecting_) {
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(context_->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return text_of(error);
    sockaddr_storage peer;
    length = sizeof(peer);
    if (getpeername(context_->fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) {
      return errno == ENOTCONN ? "" : text_of(errno);
    }
    connecting_ = false;
  }
  while (sent_ < output_.size()) {
    const ssize_t sent =
        send(context_->fd, output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return is_momentary(errno) ? "" : text_of(errno);
    }
    sent_ += static_cast<size_t>(sent);
  }
  output_.clear();
  sent_ = 0;
  return "";
}

std::string RedisConnection::receive(size_t* bytes, bool* full) {
  *bytes = 0;
  *full = false;
  const ssize_t got = recv(context_->fd, input_.get(), kInputBytes, 0);
  if (got < 0) return is_momentary(errno) ? "" : text_of(errno);
  if (got == 0) return "the connection was closed";
  *bytes = static_cast<size_t>(got);
  *full = *bytes == kInputBytes;
  if (!replies_.feed(input_.get(), *bytes)) return replies_.error();
  return "";
}

}  // namespace hotrow
