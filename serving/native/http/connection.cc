#include "http/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <ctime>
#include <limits>
#include <utility>

#include "base/log_line.h"

namespace hotrow_server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

constexpr milliseconds kForEver = milliseconds::max();
// Between two requests; clients keep some connections open for reuse.
constexpr milliseconds kIdle{75'000};
// For what a refused client still sends: closing at once could discard the reply on its way.
constexpr milliseconds kLinger{2'000};
// Least rate of a body, and of reading a reply, in bytes per millisecond.
constexpr size_t kLeastRate = 1;
constexpr size_t kReadBytes = 8192;
// At a time, so that other connections wait for microseconds.
constexpr size_t kMostReadBytes = 256 << 10;
// A body up to this size gets its memory at once.
constexpr size_t kReservedBytes = 4 << 20;
constexpr uint32_t kMostHeadBytes = 65536;
// Memory for each byte of a head: fields may be short.
constexpr size_t kFieldMemory = 16;
// A body up to this size is sent in one piece with the head.
constexpr size_t kSmallBytes = 16384;
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

std::string address_of(asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return "unknown";
  asio::ip::address address = peer.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  const std::string host = address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
  return host + ":" + std::to_string(peer.port());
}

// "Tue, 24 Nov 2026 12:00:00 GMT"
const std::string& date() {
  static thread_local std::time_t last = 0;
  static thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != last || text.empty()) {
    std::tm parts{};
    gmtime_r(&now, &parts);
    char buffer[40];
    text.assign(buffer, std::strftime(buffer, sizeof(buffer), "%a, %d %b %Y %H:%M:%S GMT", &parts));
    last = now;
  }
  return text;
}

void append_header(std::string_view name, std::string_view value, std::string* head) {
  head->append(name).append(": ").append(value).append("\r\n");
}

std::string head_of(const HttpReply& reply, bool stays) {
  std::string head;
  head.reserve(256);
  head.append("HTTP/1.1 ").append(std::to_string(reply.status)).append(" ");
  const auto reason = http::obsolete_reason(static_cast<http::status>(reply.status));
  head.append(reason.data(), reason.size()).append("\r\n");
  append_header("Date", date(), &head);
  append_header("Content-Type", reply.content_type, &head);
  append_header("Content-Length", std::to_string(reply.body.size()), &head);
  for (const auto& [name, value] : reply.headers) append_header(name, value, &head);
  append_header("Connection", stays ? "keep-alive" : "close", &head);
  return head.append("\r\n");
}

// Once a second: anyone can send nonsense.
void log_nonsense(const std::string& client) {
  static std::atomic<std::time_t> last{0};
  static std::atomic<int64_t> omitted{0};
  const std::time_t now = std::time(nullptr);
  if (last.exchange(now) == now) {
    ++omitted;
    return;
  }
  std::string line = "client " + client + ": Invalid HTTP request received.";
  if (const int64_t more = omitted.exchange(0); more > 0) {
    line += " (" + std::to_string(more) + " more since the last such line)";
  }
  log_line(Level::kWarning, "http/connection.cc", line);
}

std::string text_of(boost::string_view text) { return std::string(text.data(), text.size()); }

// Without the scheme and the server, which a client may name (RFC 9112, 3.2.2).
std::string path_of(boost::string_view target) {
  if (!beast::iequals(target.substr(0, 7), "http://")) return text_of(target);
  const size_t path = target.find('/', 7);
  return path == boost::string_view::npos ? "/" : text_of(target.substr(path));
}

}  // namespace

Connection::Connection(std::unique_ptr<Channel> channel, HttpPort* port)
    : channel_(std::move(channel)),
      port_(port),
      client_(address_of(channel_->socket())),
      descriptor_(channel_->socket().native_handle()),
      take_chunk_([this](uint64_t, boost::string_view bytes, Error& error) {
        return take_chunk(bytes, &error);
      }),
      held_(port->budget()) {}

Connection::~Connection() { close(); }

void Connection::start() {
  enter(Stage::kBeginning, port_->limits().read);
  channel_->begin([self = shared_from_this()](const Error& error) {
    if (error) return self->close();
    self->await_request(self->port_->limits().read);
  });
}

void Connection::enter(Stage stage, milliseconds patience) {
  deadline_ = patience == kForEver ? Time::max() : Steady::now() + patience;
  stage_ = stage;
}

milliseconds Connection::time_of(size_t bytes) const {
  return port_->limits().read + milliseconds(bytes / kLeastRate);
}

void Connection::check_time(Time now) {
  if (now < deadline_.load(std::memory_order_relaxed)) return;
  const Stage stage = stage_;
  expired_ = true;
  // A request that did not arrive is answered.
  const bool answers = stage == Stage::kHead || stage == Stage::kBody;
  ::shutdown(descriptor_, answers ? SHUT_RD : SHUT_RDWR);
}

void Connection::end_if_idle() {
  // What has arrived is still read, and answered.
  if (stage_ == Stage::kIdle) ::shutdown(descriptor_, SHUT_RD);
}

void Connection::await_request(milliseconds patience) {
  parser_.emplace();
  parser_->header_limit(kMostHeadBytes);
  parser_->body_limit(std::numeric_limits<uint64_t>::max());  // accept_head has another
  parser_->on_chunk_body(take_chunk_);
  request_ = HttpRequest();
  chunked_ = false;
  head_bytes_ = body_bytes_ = 0;
  stays_ = unread_ = false;
  skip_blank_lines();
  if (buffer_.size() > 0) {
    enter(Stage::kHead, port_->limits().read);
    take_head();
    return;
  }
  if (buffer_.capacity() > 2 * kReadBytes) buffer_.shrink_to_fit();
  enter(Stage::kIdle, patience);
  // It may have been idle just before and not been ended.
  if (port_->is_ending()) return close();
  read();
}

void Connection::skip_blank_lines() {
  const auto* const received = static_cast<const char*>(buffer_.data().data());
  buffer_.consume(std::string_view(received, buffer_.size()).find_first_not_of("\r\n"));
}

void Connection::read() {
  channel_->read_some(buffer_.prepare(kReadBytes),
                      [self = shared_from_this()](const Error& error, size_t bytes) {
                        self->received(error, bytes);
                      });
}

void Connection::received(const Error& error, size_t bytes) {
  if (error) {
    if (!expired_ || !counted_) return close();
    if (stage_ == Stage::kBody) return refuse(408, "The request body did not come in time");
    return refuse_head(408, "");
  }
  buffer_.commit(bytes);
  if (stage_ == Stage::kIdle) {
    skip_blank_lines();
    if (buffer_.size() == 0) return read();
    enter(Stage::kHead, port_->limits().read);
  }
  if (stage_ == Stage::kHead) {
    if (hold_head(bytes)) take_head();
  } else {
    take_chunks();
  }
}

bool Connection::hold_head(size_t bytes) {
  const bool is_usual = head_bytes_ + buffer_.size() <= kReadBytes;
  if (is_usual || held_.grow(kFieldMemory * bytes)) return true;
  unread_ = true;
  refuse(503, port_->budget()->refusal());
  return false;
}

void Connection::take_head() {
  if (!counted_) {
    counted_ = true;
    port_->count_open(1);
  }
  Error error;
  // Several calls may be needed: one for the first line, one for the fields.
  while (!error && !parser_->is_header_done() && buffer_.size() > 0) {
    const size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    head_bytes_ += used;
  }
  // The parser's own limit begins again behind a field that ends a piece.
  const size_t of_head = head_bytes_ + (parser_->is_header_done() ? 0 : buffer_.size());
  if (error == http::error::header_limit || of_head > kMostHeadBytes) {
    return refuse_head(431, "The headers are too long");
  }
  if (error == http::error::need_more || (!error && !parser_->is_header_done())) return read();
  if (error) return refuse_nonsense();
  if (accept_head()) take_body();
}

bool Connection::accept_head() {
  const auto& head = parser_->get();
  request_.verb = text_of(head.method_string());
  request_.target = path_of(head.target());
  request_.origin = text_of(head[http::field::origin]);
  request_.content_encoding = text_of(head[http::field::content_encoding]);
  request_.accept_encoding = text_of(head[http::field::accept_encoding]);
  chunked_ = parser_->chunked();
  const size_t codings = head.count(http::field::transfer_encoding);
  // The parser takes a body in another coding for the next request (RFC 9112, 6.3).
  if (codings > 0 &&
      (codings > 1 || !beast::iequals(head[http::field::transfer_encoding], "chunked"))) {
    refuse_nonsense();
    return false;
  }
  // HTTP/1.0 has no chunks: what handed the request on may see another end of it (6.1).
  stays_ = parser_->keep_alive() && !port_->is_ending() && (!chunked_ || head.version() >= 11);
  const auto length = parser_->content_length();
  unread_ = chunked_ || length.value_or(0) > 0;
  if (!unread_) return true;
  if (length.value_or(0) > port_->limits().max_body_bytes) {
    refuse_long_body();
    return false;
  }
  body_bytes_ = static_cast<size_t>(length.value_or(0));
  if (!port_->budget()->has_room(body_bytes_)) {
    refuse(503, port_->budget()->refusal());
    return false;
  }
  return true;
}

void Connection::take_body() {
  const auto& head = parser_->get();
  const bool asks =
      head.version() >= 11 && beast::iequals(head[http::field::expect], "100-continue");
  parser_->get().clear();  // the fields
  if (!unread_) return run();
  body_since_ = Steady::now();
  enter(Stage::kBody, time_of(0));
  if (asks && buffer_.size() == 0) {
    head_ = kContinue;
    sent_ = 0;
    channel_->write_some({asio::buffer(head_), asio::const_buffer()},
                         [self = shared_from_this()](const Error& error, size_t) {
                           if (error) return self->close();
                           self->chunked_ ? self->take_chunks() : self->read_body();
                         });
    return;
  }
  if (chunked_) return take_chunks();
  const size_t had = std::min(buffer_.size(), body_bytes_);
  if (!hold(had)) return;
  // The system gives pages when bytes are written.
  if (!reserve(std::min(body_bytes_, kReservedBytes))) return;
  request_.body.append({static_cast<const char*>(buffer_.data().data()), had});
  buffer_.consume(had);
  read_body();
}

bool Connection::reserve(size_t bytes) {
  if (request_.body.reserved() >= bytes) return true;
  try {
    request_.body.reserve(bytes);
    return true;
  } catch (const std::bad_alloc&) {
    refuse(503, "no memory for this request");
    return false;
  }
}

bool Connection::hold(size_t bytes) {
  const size_t most = port_->limits().max_body_bytes;
  if (bytes > most || request_.body.size() > most - bytes) {
    refuse_long_body();
    return false;
  }
  if (!held_.grow(bytes)) {
    refuse(503, port_->budget()->refusal());
    return false;
  }
  deadline_ = body_since_ + time_of(request_.body.size() + bytes);
  return true;
}

void Connection::refuse_long_body() { refuse(413, too_long(port_->limits().max_body_bytes)); }

// Straight into the body's memory.
void Connection::read_body() {
  const size_t missing = body_bytes_ - request_.body.size();
  if (missing == 0) return run();
  if (!reserve(std::min(missing, kReadBytes))) return;
  const size_t room = std::min({missing, request_.body.reserved(), kMostReadBytes});
  char* const to = request_.body.reserve(room);
  channel_->read_some(asio::buffer(to, room),
                      [self = shared_from_this()](const Error& error, size_t bytes) {
                        if (error) return self->received(error, bytes);
                        if (!self->hold(bytes)) return;
                        self->request_.body.commit(bytes);
                        self->read_body();
                      });
}

size_t Connection::take_chunk(boost::string_view bytes, Error* error) {
  if (refusal_.has_value() || !hold(bytes.size()) || !reserve(bytes.size())) {
    *error = http::error::end_of_stream;  // parses no more
    return 0;
  }
  request_.body.append({bytes.data(), bytes.size()});
  return bytes.size();
}

void Connection::take_chunks() {
  Error error;
  takes_chunks_ = true;
  while (!error && !parser_->is_done() && buffer_.size() > 0) {
    buffer_.consume(parser_->put(buffer_.data(), error));
  }
  takes_chunks_ = false;
  if (refusal_.has_value()) return reply(*std::exchange(refusal_, std::nullopt));
  if (parser_->is_done()) return run();
  // What waits is no body: the extensions of a chunk, or trailers. The parser has no limit of them.
  const bool is_short = buffer_.size() <= kMostHeadBytes;
  if (is_short && (!error || error == http::error::need_more)) return read();
  refuse_nonsense();
}

void Connection::refuse_nonsense() {
  log_nonsense(client_);
  refuse_head(400, "Invalid HTTP request received.");
}

void Connection::run() {
  unread_ = false;
  enter(Stage::kRunning, kForEver);
  self_ = shared_from_this();
  port_->enqueue(this);
}

void Connection::happen(bool) {
  const std::shared_ptr<Connection> self = std::move(self_);
  try {
    port_->handler()->answer(&request_, &held_,
                             [self](HttpReply reply) { self->reply(std::move(reply)); });
  } catch (const std::bad_alloc&) {
    close();
  }
}

void Connection::refuse(int status, const std::string& message) {
  stays_ = false;
  HttpReply refusal;
  refusal.status = status;
  refusal.body = "{ \"error\": \"" + message + "\" }";
  // Another thread may go on once the reply is being written, while this one still parses.
  if (takes_chunks_) {
    refusal_ = std::move(refusal);
  } else {
    reply(std::move(refusal));
  }
}

void Connection::refuse_head(int status, const std::string& message) {
  stays_ = false;
  unread_ = true;
  HttpReply refusal;
  refusal.status = status;
  refusal.body = message;
  refusal.content_type = "text/plain";
  reply(std::move(refusal));
}

void Connection::reply(HttpReply reply) {
  const bool head_alone = request_.verb == "HEAD";
  stays_ = stays_ && !port_->is_ending();
  head_ = head_of(reply, stays_);
  request_ = HttpRequest();
  held_.release();
  if (head_alone) {
    reply.body.clear();
  } else if (reply.body.size() <= kSmallBytes) {
    head_ += reply.body;
    reply.body.clear();
  }
  reply_ = std::move(reply);
  held_.add(head_.size() + reply_.body.size());
  sent_ = 0;
  enter(Stage::kWriting, time_of(head_.size() + reply_.body.size()));
  write();
}

void Connection::write() {
  const size_t of_head = std::min(sent_, head_.size());
  channel_->write_some(
      {asio::buffer(head_) + of_head, asio::buffer(reply_.body) + (sent_ - of_head)},
      [self = shared_from_this()](const Error& error, size_t bytes) {
        self->written(error, bytes);
      });
}

void Connection::written(const Error& error, size_t bytes) {
  if (error) return close();
  sent_ += bytes;
  if (sent_ < head_.size() + reply_.body.size()) return write();
  finish();
}

void Connection::finish() {
  reply_ = HttpReply();
  head_ = std::string();
  held_.release();
  if (counted_) port_->count_open(-1);
  counted_ = false;
  if (stays_ && !port_->is_ending()) return await_request(kIdle);
  enter(Stage::kEnding, kLinger);
  channel_->end([self = shared_from_this()] { self->unread_ ? self->linger() : self->close(); });
}

void Connection::linger() {
  buffer_.clear();
  channel_->read_some(buffer_.prepare(kReadBytes),
                      [self = shared_from_this()](const Error& error, size_t) {
                        error ? self->close() : self->linger();
                      });
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  if (counted_) port_->count_open(-1);
  counted_ = false;
  held_.release();
  port_->forget(this);
  Error ignored;
  channel_->socket().close(ignored);
}

}  // namespace hotrow_server
