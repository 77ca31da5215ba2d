// The bytes of a connection: plain, or in TLS.
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>

namespace hotrow_server {

class Channel {
 public:
  using Error = boost::system::error_code;
  using Done = std::function<void(const Error&, size_t)>;

  virtual ~Channel() = default;
  // One operation at a time, but from any thread. `done` is called by a thread of the context.
  virtual void begin(std::function<void(const Error&)> done) = 0;
  virtual void read_some(boost::asio::mutable_buffer to, Done done) = 0;
  virtual void write_some(const std::array<boost::asio::const_buffer, 2>& from, Done done) = 0;
  virtual boost::asio::ip::tcp::socket& socket() = 0;
  // Sends what ends the stream; the peer may still send.
  virtual void end(std::function<void()> done) = 0;
};

std::unique_ptr<Channel> plain_channel(boost::asio::ip::tcp::socket socket);
std::unique_ptr<Channel> tls_channel(boost::asio::ip::tcp::socket socket,
                                     boost::asio::ssl::context* context);

}  // namespace hotrow_server
