#include "http/server.h"

#include <sys/resource.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <limits>
#include <new>
#include <utility>

#include "base/refused.h"

namespace hotrow_server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using std::chrono::milliseconds;

constexpr milliseconds kLook{100};
constexpr int kBacklog = 1024;
// To read, to answer, to write.
constexpr int kEventsPerRequest = 3;

// Leaves a quarter of the descriptors to the rest of the process: gRPC, stores, files.
size_t connections_of_process() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return std::numeric_limits<size_t>::max();
  return files.rlim_cur - files.rlim_cur / 4;
}

asio::ssl::context context_of(const HttpTls& tls) {
  asio::ssl::context context(asio::ssl::context::tls_server);
  try {
    context.set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
    context.use_certificate_chain(asio::buffer(tls.certificates));
    context.use_private_key(asio::buffer(tls.key), asio::ssl::context::pem);
    if (!tls.clients_authorities.empty()) {
      context.add_certificate_authority(asio::buffer(tls.clients_authorities));
      context.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
      // Without a name, OpenSSL refuses clients that resume a session.
      constexpr unsigned char kName[] = "rest";
      SSL_CTX_set_session_id_context(context.native_handle(), kName, sizeof(kName));
    }
  } catch (const boost::system::system_error& error) {
    refuse(std::string("TLS of the REST port cannot be used: ") + error.what());
  }
  return context;
}

}  // namespace

// Requests that have arrived. Whoever waits for one also reads, writes and accepts.
class HttpServer::Events final : public EventSource {
 public:
  explicit Events(asio::io_context* context) : context_(context) {}

  bool take(milliseconds patience, Taken* taken) override {
    *taken = {next(), true};
    if (taken->event != nullptr) return true;
    const bool did = work(patience);
    taken->event = next();
    return did || taken->event != nullptr;
  }

  void add(Event* event) {
    bool is_alone = false;
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(event);
      is_alone = ready_.size() == 1;
    }
    // Wakes a thread that waits in run_one_until; one that works on the context takes one by
    // itself.
    const bool takes = is_alone && context_->get_executor().running_in_this_thread();
    if (!takes) asio::post(*context_, [] {});
  }

 private:
  // Whether there was something to do.
  bool work(milliseconds patience) {
    try {
      return (patience.count() == 0
                  ? context_->poll_one()
                  : context_->run_one_until(std::chrono::steady_clock::now() + patience)) > 0;
    } catch (const std::bad_alloc&) {
      return true;  // its connection is closed: nothing refers to it any more
    }
  }

  // Null: none has arrived.
  Event* next() {
    const std::lock_guard lock(mutex_);
    if (ready_.empty()) return nullptr;
    Event* const event = ready_.front();
    ready_.pop_front();
    return event;
  }

  asio::io_context* const context_;
  std::mutex mutex_;
  std::deque<Event*> ready_;
};

HttpServer::HttpServer(int port, const std::optional<HttpTls>& tls, HttpLimits limits,
                       MemoryBudget* budget, HttpHandler* handler)
    : busy_(context_.get_executor()),
      limits_(limits),
      most_connections_(connections_of_process()),
      budget_(budget),
      handler_(handler),
      acceptor_(asio::make_strand(context_)),
      timer_(context_),
      pause_(acceptor_.get_executor()),
      events_(std::make_unique<Events>(&context_)) {
  if (tls.has_value()) tls_.emplace(context_of(*tls));
  listen(port);
}

HttpServer::~HttpServer() = default;

void HttpServer::listen(int port) {
  boost::system::error_code error;
  const auto number = static_cast<uint16_t>(port);
  // IPv6 and IPv4, or IPv4 alone.
  acceptor_.open(tcp::v6(), error);
  if (!error) acceptor_.set_option(asio::ip::v6_only(false), error);
  tcp::endpoint address(tcp::v6(), number);
  if (error) {
    acceptor_.close(error);
    acceptor_.open(tcp::v4(), error);
    address = tcp::endpoint(tcp::v4(), number);
  }
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(address, error);
  if (!error) acceptor_.listen(kBacklog, error);
  if (error) {
    throw Refused(grpc::StatusCode::UNAVAILABLE,
                  "port " + std::to_string(port) + " cannot be listened on: " + error.message());
  }
}

void HttpServer::begin(std::function<void(Connection::Time)> tick) {
  tick_ = std::move(tick);
  accept();
  look();
  workers_ = std::make_unique<Workers>(events_.get(), kEventsPerRequest);
}

bool HttpServer::is_full() {
  const std::lock_guard lock(connections_mutex_);
  return connections_.size() >= most_connections_;
}

void HttpServer::accept_later() {
  pause_.expires_after(kLook);
  pause_.async_wait([this](const boost::system::error_code&) { accept(); });
}

void HttpServer::accept() {
  if (is_full()) return accept_later();
  // Only the acceptor is of the strand.
  acceptor_.async_accept(
      context_, [this](const boost::system::error_code& error, tcp::socket socket) {
        if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
        if (error) return accept_later();  // no descriptor is left, say
        boost::system::error_code ignored;
        socket.set_option(tcp::no_delay(true), ignored);
        socket.set_option(tcp::socket::keep_alive(true), ignored);
        const auto connection =
            std::make_shared<Connection>(tls_.has_value() ? tls_channel(std::move(socket), &*tls_)
                                                          : plain_channel(std::move(socket)),
                                         this);
        {
          const std::lock_guard lock(connections_mutex_);
          connections_.insert(connection.get());
        }
        connection->start();
        accept();
      });
}

void HttpServer::look() {
  timer_.expires_after(kLook);
  timer_.async_wait([this](const boost::system::error_code&) {
    const auto now = std::chrono::steady_clock::now();
    {
      const std::lock_guard lock(connections_mutex_);
      for (Connection* const connection : connections_) connection->check_time(now);
    }
    tick_(now);
    look();
  });
}

void HttpServer::end() {
  ending_ = true;
  asio::post(acceptor_.get_executor(), [this] {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  });
  const std::lock_guard lock(connections_mutex_);
  for (Connection* const connection : connections_) connection->end_if_idle();
}

void HttpServer::enqueue(Event* event) { events_->add(event); }

void HttpServer::forget(Connection* connection) {
  const std::lock_guard lock(connections_mutex_);
  connections_.erase(connection);
}

}  // namespace hotrow_server
