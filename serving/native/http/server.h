// An HTTP/1.1 server on a TCP port, plain or with TLS.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "base/workers.h"
#include "http/connection.h"

namespace hotrow_server {

// Contents of PEM files.
struct HttpTls {
  std::string key, certificates;
  std::string clients_authorities;  // empty: clients need no certificate
};

class HttpServer final : public HttpPort {
 public:
  // Listens at once on every interface; connections wait until `begin`. Fails with UNAVAILABLE when
  // the port is taken or not allowed, and with INVALID_ARGUMENT for TLS that cannot be used. The
  // handler and the budget must outlive it.
  HttpServer(int port, const std::optional<HttpTls>& tls, HttpLimits limits, MemoryBudget* budget,
             HttpHandler* handler);
  ~HttpServer() override;

  // Answers from now on. tick: called ten times a second.
  void begin(std::function<void(Connection::Time)> tick);
  // Takes no new request; connections without one are closed. The process ends afterwards: nothing
  // is destroyed while threads use it.
  void end();
  // Requests that have begun and have not ended.
  int open() const { return open_.load(std::memory_order_relaxed); }

  const HttpLimits& limits() const override { return limits_; }
  MemoryBudget* budget() override { return budget_; }
  HttpHandler* handler() override { return handler_; }
  void enqueue(Event* event) override;
  void count_open(int more) override { open_.fetch_add(more, std::memory_order_relaxed); }
  bool is_ending() const override { return ending_; }
  void forget(Connection* connection) override;

 private:
  class Events;

  void listen(int port);
  // Whether clients wait until others have gone.
  bool is_full();
  void accept();
  void accept_later();
  void look();

  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> busy_;
  std::optional<boost::asio::ssl::context> tls_;
  const HttpLimits limits_;
  const size_t most_connections_;
  MemoryBudget* const budget_;
  HttpHandler* const handler_;
  boost::asio::ip::tcp::acceptor acceptor_;  // used in its strand
  boost::asio::steady_timer timer_, pause_;
  std::function<void(Connection::Time)> tick_;
  std::atomic<int> open_{0};
  std::atomic<bool> ending_{false};

  std::mutex connections_mutex_;
  std::unordered_set<Connection*> connections_;

  std::unique_ptr<Events> events_;
  std::unique_ptr<Workers> workers_;
};

}  // namespace hotrow_server
