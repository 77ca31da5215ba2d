#include "control/socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>
#include <thread>

namespace hotrow_server {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

bool read_all(int connection, void* to, size_t bytes) {
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    const ssize_t got = recv(connection, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool send_reply(int connection, const hotrow::Reply& reply) {
  const std::string bytes = reply.SerializeAsString();
  const auto size = static_cast<uint32_t>(bytes.size());
  return write_all(connection, {reinterpret_cast<const char*>(&size), sizeof(size)}) &&
         write_all(connection, bytes);
}

void answer_one(int connection, ControlService* control) {
  uint32_t size;
  hotrow::Request request;
  if (read_all(connection, &size, sizeof(size))) {
    std::string bytes(size, '\0');
    if (read_all(connection, bytes.data(), size) && request.ParseFromString(bytes)) {
      const hotrow::Reply reply = control->answer(request);
      if (!send_reply(connection, reply) && request.has_load() && reply.code() == 0) {
        // The requesting process has ended, and no other process knows of this servable.
        hotrow::Request unload;
        unload.mutable_unload()->set_servable(request.load().servable());
        control->answer(unload);
      }
    }
  }
  close(connection);
  if (request.has_drain()) control->end();
}

}  // namespace

void serve_control(const std::string& path, ControlService* control) {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    fail(path);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, SOMAXCONN) != 0) {
    fail(path);
  }
  std::thread([listener, control] {
    for (;;) {
      const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection >= 0) std::thread(answer_one, connection, control).detach();
    }
  }).detach();
}

}  // namespace hotrow_server
