#include "http/channel.h"

#include <boost/asio/ssl/stream.hpp>
#include <utility>

namespace hotrow_server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

class PlainChannel final : public Channel {
 public:
  explicit PlainChannel(tcp::socket socket) : socket_(std::move(socket)) {}
  void begin(std::function<void(const Error&)> done) override { done(Error()); }
  void read_some(asio::mutable_buffer to, Done done) override {
    socket_.async_read_some(to, std::move(done));
  }
  void write_some(const std::array<asio::const_buffer, 2>& from, Done done) override {
    socket_.async_write_some(from, std::move(done));
  }
  tcp::socket& socket() override { return socket_; }
  void end(std::function<void()> done) override {
    Error ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    done();
  }

 private:
  tcp::socket socket_;
};

class TlsChannel final : public Channel {
 public:
  TlsChannel(tcp::socket socket, asio::ssl::context* context)
      : stream_(std::move(socket), *context) {}
  void begin(std::function<void(const Error&)> done) override {
    stream_.async_handshake(asio::ssl::stream_base::server, std::move(done));
  }
  void read_some(asio::mutable_buffer to, Done done) override {
    stream_.async_read_some(to, std::move(done));
  }
  void write_some(const std::array<asio::const_buffer, 2>& from, Done done) override {
    // TLS sends one buffer at a time.
    stream_.async_write_some(from[0].size() > 0 ? from[0] : from[1], std::move(done));
  }
  tcp::socket& socket() override { return stream_.next_layer(); }
  void end(std::function<void()> done) override {
    stream_.async_shutdown([this, done = std::move(done)](const Error&) {
      Error ignored;
      stream_.next_layer().shutdown(tcp::socket::shutdown_send, ignored);
      done();
    });
  }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

}  // namespace

std::unique_ptr<Channel> plain_channel(tcp::socket socket) {
  return std::make_unique<PlainChannel>(std::move(socket));
}

std::unique_ptr<Channel> tls_channel(tcp::socket socket, asio::ssl::context* context) {
  return std::make_unique<TlsChannel>(std::move(socket), context);
}

}  // namespace hotrow_server
