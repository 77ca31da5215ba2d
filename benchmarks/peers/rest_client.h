// A client of a REST server: posts the same body again and again over one connection and waits for
// each answer.
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

class RestClient {
 public:
  // address: HOST:PORT/PATH.
  RestClient(const std::string& address, const std::string& body) {
    const size_t slash = address.find('/'), colon = address.find(':');
    const std::string host = address.substr(0, colon);
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const std::string port = address.substr(colon + 1, slash - colon - 1);
    if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) std::exit(1);
    socket_ = socket(found->ai_family, SOCK_STREAM, 0);
    if (connect(socket_, found->ai_addr, found->ai_addrlen) != 0) std::exit(1);
    freeaddrinfo(found);
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    request_ =
        "POST " + address.substr(slash) + " HTTP/1.1\r\nHost: " + host +
        "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
  }
  ~RestClient() { close(socket_); }
  RestClient(const RestClient&) = delete;

  // Whether the answer is 200.
  bool ask() {
    for (std::string_view rest = request_; !rest.empty();) {
      const ssize_t sent = send(socket_, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      rest.remove_prefix(static_cast<size_t>(sent));
    }
    said_.clear();
    size_t head;
    while ((head = said_.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return false;
    }
    size_t at = said_.find("ontent-");
    while (at < head && said_.compare(at + 7, 7, "ength: ") != 0 &&
           said_.compare(at + 8, 7, "ength: ") != 0) {
      at = said_.find("ontent-", at + 1);
    }
    const size_t length = std::strtoul(said_.c_str() + said_.find(':', at) + 1, nullptr, 10);
    while (said_.size() < head + 4 + length) {
      if (!more()) return false;
    }
    return said_.compare(9, 3, "200") == 0;
  }

 private:
  bool more() {
    char buffer[65536];
    const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
    if (got > 0) said_.append(buffer, static_cast<size_t>(got));
    return got > 0;
  }

  int socket_;
  std::string request_, said_;
};
