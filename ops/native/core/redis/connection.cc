#include "core/redis/connection.h"

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
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

RedisConnection::RedisConnection(const RedisAddress& address, const std::string& ip, RedisTls* tls)
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
  if (tls != nullptr) {
    tls_ = std::make_unique<TlsSession>(tls->credentials(), context_->fd, address.host);
  }
  input_.reset(new char[kInputBytes]);
}

RedisConnection::~RedisConnection() = default;

int RedisConnection::fd() const { return context_->fd; }

short RedisConnection::events() const {
  switch (state_) {
    case State::kConnecting:
    case State::kWritesHandshake:
      return POLLOUT;
    case State::kReadsHandshake:
      return POLLIN;
    case State::kOpen:
      break;
  }
  return has_output() ? POLLIN | POLLOUT : POLLIN;
}

std::string RedisConnection::go_on_connecting() {
  if (state_ != State::kConnecting) return shake_hands();
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(context_->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return text_of(error);
  sockaddr_storage peer;
  length = sizeof(peer);
  if (getpeername(context_->fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) {
    return errno == ENOTCONN ? "" : text_of(errno);
  }
  if (tls_ != nullptr) return shake_hands();
  state_ = State::kOpen;
  return "";
}

std::string RedisConnection::shake_hands() {
  std::string why;
  switch (tls_->handshake(&why)) {
    case TlsSession::Handshake::kDone:
      state_ = State::kOpen;
      break;
    case TlsSession::Handshake::kWaitsToRead:
      state_ = State::kReadsHandshake;
      break;
    case TlsSession::Handshake::kWaitsToWrite:
      state_ = State::kWritesHandshake;
      break;
    case TlsSession::Handshake::kFailed:
      break;
  }
  return why;
}

std::string RedisConnection::flush() {
  if (is_connecting()) {
    const std::string why = go_on_connecting();
    if (!why.empty() || is_connecting()) return why;
  }
  while (sent_ < output_.size()) {
    std::string why;
    const ptrdiff_t sent = send_some(output_.data() + sent_, output_.size() - sent_, &why);
    if (sent <= 0) return why;
    sent_ += static_cast<size_t>(sent);
  }
  output_.clear();
  sent_ = 0;
  return "";
}

std::string RedisConnection::receive(size_t* bytes, bool* full) {
  *bytes = 0;
  std::string why;
  // A record of TLS is shorter than the buffer.
  while (*bytes < kInputBytes) {
    const ptrdiff_t got = receive_some(input_.get() + *bytes, kInputBytes - *bytes, &why);
    if (got > 0) *bytes += static_cast<size_t>(got);
    if (got <= 0 || tls_ == nullptr) break;
  }
  *full = *bytes == kInputBytes || (tls_ != nullptr && tls_->has_input());
  if (!replies_.feed(input_.get(), *bytes)) return replies_.error();
  return why;
}

// As TlsSession::send.
ptrdiff_t RedisConnection::send_some(const char* data, size_t bytes, std::string* why) {
  if (tls_ != nullptr) return tls_->send(data, bytes, why);
  ptrdiff_t sent;
  do {
    sent = send(context_->fd, data, bytes, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return sent;
  if (is_momentary(errno)) return 0;
  *why = text_of(errno);
  return -1;
}

// As TlsSession::receive.
ptrdiff_t RedisConnection::receive_some(char* data, size_t bytes, std::string* why) {
  if (tls_ != nullptr) return tls_->receive(data, bytes, why);
  const ptrdiff_t got = recv(context_->fd, data, bytes, 0);
  if (got > 0) return got;
  if (got < 0 && is_momentary(errno)) return 0;
  *why = got == 0 ? "the connection was closed" : text_of(errno);
  return -1;
}

}  // namespace hotrow
