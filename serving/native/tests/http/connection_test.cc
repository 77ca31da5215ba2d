// A connection without a server's threads, so that what happens in between is the test's to choose.
#include "http/connection.h"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <string>

namespace hotrow_server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::milliseconds;

// Answers with the target, at once.
class Port final : public HttpPort, public HttpHandler {
 public:
  const HttpLimits& limits() const override { return limits_; }
  MemoryBudget* budget() override { return &budget_; }
  HttpHandler* handler() override { return this; }
  void enqueue(Event* event) override { event->happen(true); }
  void count_open(int) override {}
  bool is_ending() const override { return is_ending_; }
  void forget(Connection*) override {}
  void answer(HttpRequest* request, HeldBytes*, Done done) override {
    HttpReply reply;
    reply.body = request->target;
    done(std::move(reply));
  }

  void end() { is_ending_ = true; }

 private:
  const HttpLimits limits_{1000, milliseconds(60'000)};
  MemoryBudget budget_{1'000'000};
  bool is_ending_ = false;
};

// A connection and its client.
struct Connected {
  Connected() {
    tcp::acceptor acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    client.connect(acceptor.local_endpoint());
    connection = std::make_shared<Connection>(plain_channel(acceptor.accept()), &port);
  }
  // The last reply, after which the server ends the connection.
  std::string reply() {
    context.run();
    std::string text;
    boost::system::error_code end;
    asio::read(client, asio::dynamic_buffer(text), end);
    return text;
  }

  Port port;
  asio::io_context context;
  tcp::socket client{context};
  std::shared_ptr<Connection> connection;
};

constexpr std::string_view kRequest = "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n";

}  // namespace

TEST_CASE("connection: it has no deadline before it starts") {
  Connected connected;
  connected.connection->check_time(std::chrono::steady_clock::now());
  connected.connection->start();
  asio::write(connected.client, asio::buffer(kRequest));
  CHECK(connected.reply().ends_with("/a"));
}

TEST_CASE("connection: an end answers a request that has arrived") {
  Connected connected;
  connected.connection->start();
  asio::write(connected.client, asio::buffer(kRequest.substr(0, 17)));
  asio::write(connected.client, asio::buffer(std::string_view("\r\n")));
  connected.port.end();
  connected.connection->end_if_idle();
  CHECK(connected.reply().ends_with("/a"));
}

}  // namespace hotrow_server
