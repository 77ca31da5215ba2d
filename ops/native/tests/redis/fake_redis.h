// A Redis node on a Unix socket that sends the answers of a test.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/temporary_directory.h"

namespace hotrow {

class FakeRedis {
 public:
  // Receives the arguments of a command; returns the bytes of the answer. "" closes the connection.
  using Answer = std::function<std::string(const std::vector<std::string>&)>;

  // piece: bytes that are sent at a time.
  explicit FakeRedis(Answer answer, size_t piece = 1 << 20)
      : answer_(std::move(answer)), piece_(piece) {
    listener_ = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path().c_str(), sizeof(name.sun_path) - 1);
    bind(listener_, reinterpret_cast<sockaddr*>(&name), sizeof(name));
    listen(listener_, 64);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeRedis() {
    ends_ = true;
    thread_.join();
    close(listener_);
  }

  std::string path() const { return directory_ / "s"; }
  std::string topology() const {
    return R"({"cluster": false, "nodes": [{"address": "unix:)" + path() + R"("}]})";
  }
  int connections() const { return connections_; }

 private:
  struct Client {
    int fd;
    std::string input;
  };

  void serve() {
    std::vector<Client> clients;
    while (!ends_) {
      std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
      for (const Client& client : clients) polled.push_back({client.fd, POLLIN, 0});
      if (poll(polled.data(), polled.size(), 5) <= 0) continue;
      for (size_t i = polled.size(); i-- > 1;) {
        if (polled[i].revents == 0 || talk(&clients[i - 1])) continue;
        close(clients[i - 1].fd);
        clients.erase(clients.begin() + static_cast<ptrdiff_t>(i - 1));
      }
      if (polled[0].revents != 0) {
        clients.push_back({accept(listener_, nullptr, nullptr), ""});
        ++connections_;
      }
    }
    for (const Client& client : clients) close(client.fd);
  }

  // False: the connection ends.
  bool talk(Client* client) {
    char buffer[4096];
    const ssize_t got = recv(client->fd, buffer, sizeof(buffer), 0);
    if (got <= 0) return false;
    client->input.append(buffer, static_cast<size_t>(got));
    std::vector<std::string> command;
    while (take_command(&client->input, &command)) {
      const std::string bytes = answer_(command);
      if (bytes.empty()) return false;
      for (size_t at = 0; at < bytes.size(); at += piece_) {
        const size_t length = std::min(piece_, bytes.size() - at);
        if (send(client->fd, bytes.data() + at, length, MSG_NOSIGNAL) < 0) return false;
      }
    }
    return true;
  }

  static bool take_command(std::string* input, std::vector<std::string>* command) {
    size_t at = 0;
    const auto number = [&](size_t* value) {
      const size_t end = input->find("\r\n", at);
      if (end == std::string::npos) return false;
      *value = std::stoul(input->substr(at + 1, end - at - 1));
      at = end + 2;
      return true;
    };
    if (input->empty() || (*input)[0] != '*') {
      const size_t end = input->find("\r\n");
      if (end == std::string::npos) return false;
      *command = {input->substr(0, end)};
      input->erase(0, end + 2);
      return true;
    }
    size_t count;
    if (!number(&count)) return false;
    command->clear();
    for (size_t length; count > 0; --count) {
      if (!number(&length) || input->size() < at + length + 2) return false;
      command->push_back(input->substr(at, length));
      at += length + 2;
    }
    input->erase(0, at);
    return true;
  }

  TemporaryDirectory directory_;
  Answer answer_;
  size_t piece_;
  int listener_;
  std::atomic<bool> ends_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

}  // namespace hotrow
