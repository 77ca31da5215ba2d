// Random bytes for the HTTP server, over a socket: whole, in two pieces, or from a client that goes
// away. The first byte chooses. Every request ends, and gives back its memory.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "base/log_line.h"
#include "http/server.h"

namespace hotrow_server {

// The server logs each request that is not HTTP.
void log_line(Level, const char*, const std::string&) {}

namespace {

using std::chrono::milliseconds;

constexpr int64_t kBudgetBytes = 4000;
constexpr size_t kMostBodyBytes = 3000;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

class Echo final : public HttpHandler {
 public:
  void answer(HttpRequest* request, HeldBytes*, Done done) override {
    expect(request->body.size() <= kMostBodyBytes, "a body is longer than allowed");
    HttpReply reply;
    reply.body = request->verb + request->target + std::string(request->body.view());
    done(std::move(reply));
  }
};

sockaddr_in local(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = local(0);
  socklen_t size = sizeof(address);
  expect(bind(probe, reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
  expect(getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
  close(probe);
  return ntohs(address.sin_port);
}

// Its threads run until the process ends, so it is never destroyed.
struct Served {
  Served() {
    server.begin([](Connection::Time) {});
  }
  // Whether no request is under way, which takes a moment after a connection.
  bool is_idle() const {
    for (int i = 0; i < 20'000; ++i) {
      if (server.open() == 0 && budget.has_room(kBudgetBytes)) return true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }

  const int port = free_port();
  MemoryBudget budget{kBudgetBytes};
  Echo echo;
  HttpServer server{port, std::nullopt, {kMostBodyBytes, milliseconds(2000)}, &budget, &echo};
};

// Parts of HTTP for bytes above 127, so that the input need not find them letter by letter.
std::string as_tokens(std::string_view bytes) {
  static constexpr const char* kTokens[] = {"GET / HTTP/1.1\r\n",
                                            "POST /v1/models/m:predict HTTP/1.1\r\n",
                                            "OPTIONS * HTTP/1.0\r\n",
                                            "HEAD /a?b HTTP/1.1\r\n",
                                            "Host: a\r\n",
                                            "\r\n",
                                            "\r\n\r\n",
                                            "Content-Length: ",
                                            "Content-Length: 5\r\n\r\n",
                                            "Content-Length: 2999\r\n",
                                            "Content-Length: 18446744073709551616\r\n",
                                            "Transfer-Encoding: chunked\r\n\r\n",
                                            "Transfer-Encoding: gzip, chunked\r\n",
                                            "5\r\nhello\r\n",
                                            "0\r\n\r\n",
                                            "ffffffffffffffff\r\n",
                                            "5;a=b\r\n",
                                            "Connection: close\r\n",
                                            "Connection: keep-alive\r\n",
                                            "Expect: 100-continue\r\n",
                                            "Content-Encoding: gzip\r\n",
                                            "Origin: http://a\r\n",
                                            "Upgrade: h2c\r\n",
                                            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                            "hello",
                                            ": ",
                                            " HTTP/1.1\r\n"};
  std::string text;
  for (const char byte : bytes) {
    const auto at = static_cast<unsigned char>(byte);
    text += at < 128 ? std::string(1, byte) : std::string(kTokens[at % std::size(kTokens)]);
  }
  return text;
}

// A client of the server. Waits while the system has no port for one: each is away for a minute
// after a connection that its client ended.
int connected(int port) {
  const sockaddr_in address = local(port);
  for (int i = 0; i < 1000; ++i) {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      return client;
    }
    // The fuzzer's alarm interrupts calls.
    expect(errno == EADDRNOTAVAIL || errno == EINTR, std::strerror(errno));
    close(client);
    std::this_thread::sleep_for(milliseconds(100));
  }
  expect(false, "the system has no port for a client");
  return -1;
}

void send_all(int client, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(client, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // refused before all of it was read
    text.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string read_all(int client) {
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = recv(client, part, sizeof(part), 0)) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

void fuzz(int way, std::string_view text) {
  static auto* const served = new Served();
  const int client = connected(served->port);
  const size_t first = way == 0 ? text.size() : text.size() / 2;
  send_all(client, text.substr(0, first));
  if (way == 1) std::this_thread::sleep_for(milliseconds(1));
  if (way != 2) {
    send_all(client, text.substr(first));
    shutdown(client, SHUT_WR);
    const std::string replies = read_all(client);
    expect(replies.empty() || replies.starts_with("HTTP/1.1 "), "a reply is not HTTP");
  }
  close(client);
  expect(served->is_idle(), "a request does not end, or keeps its memory");
}

}  // namespace
}  // namespace hotrow_server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  // Mostly whole.
  const int way = data[0] % 8 < 6 ? 0 : data[0] % 8 - 5;
  hotrow_server::fuzz(way, hotrow_server::as_tokens(bytes));
  return 0;
}
