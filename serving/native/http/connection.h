// A connection of a client: its requests, one after the other.
#pragma once

#include <atomic>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/event.h"
#include "base/memory_budget.h"
#include "http/channel.h"
#include "http/message.h"

namespace hotrow_server {

// Limits of one request.
struct HttpLimits {
  size_t max_body_bytes;
  // For headers to arrive. A body, and the client's reading of a reply, may take a second more for
  // each 1000 bytes.
  std::chrono::milliseconds read;
};

// What connections have in common.
class HttpPort {
 public:
  virtual ~HttpPort() = default;
  virtual const HttpLimits& limits() const = 0;
  virtual MemoryBudget* budget() = 0;
  virtual HttpHandler* handler() = 0;
  // A worker handles the event.
  virtual void enqueue(Event* event) = 0;
  // A request began or ended.
  virtual void count_open(int more) = 0;
  virtual bool is_ending() const = 0;
  // Forgets a connection, which closes its socket afterwards.
  virtual void forget(class Connection* connection) = 0;
};

class Connection final : public Event, public std::enable_shared_from_this<Connection> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Connection(std::unique_ptr<Channel> channel, HttpPort* port);
  ~Connection() override;

  void start();
  // Ends what takes too long. Called from any thread, while the port knows the connection.
  void check_time(Time now);
  // Ends the connection if no request is under way; as check_time.
  void end_if_idle();

 private:
  using Error = Channel::Error;
  using Parser = boost::beast::http::request_parser<boost::beast::http::empty_body>;
  // Of the request under way.
  enum class Stage { kBeginning, kIdle, kHead, kBody, kRunning, kWriting, kEnding };

  void happen(bool ok) override;
  void enter(Stage stage, std::chrono::milliseconds patience);
  // Patience for so many bytes.
  std::chrono::milliseconds time_of(size_t bytes) const;
  void await_request(std::chrono::milliseconds patience);
  // Some clients send one behind a body (RFC 9112, 2.2).
  void skip_blank_lines();
  void read();
  void received(const Error& error, size_t bytes);
  // Counts bytes of a head that is longer than usual; a usual one is taken in any case, so that
  // health is answered when there is no memory. False: the request is refused.
  bool hold_head(size_t bytes);
  void take_head();
  // Reads the headers that matter. False: the request is refused.
  bool accept_head();
  void take_body();
  // Counts bytes of the body. False: the request is refused.
  bool hold(size_t bytes);
  // Makes room for bytes of the body. False: there is no memory, and the request is refused.
  bool reserve(size_t bytes);
  void refuse_long_body();
  void read_body();
  void take_chunks();
  // Takes a piece of a chunked body; returns how much of it.
  size_t take_chunk(boost::string_view bytes, Error* error);
  void run();
  void refuse(int status, const std::string& message);
  void refuse_head(int status, const std::string& message);
  void refuse_nonsense();
  void reply(HttpReply reply);
  void write();
  void written(const Error& error, size_t bytes);
  void finish();
  void linger();
  void close();

  const std::unique_ptr<Channel> channel_;
  HttpPort* const port_;
  const std::string client_;  // its address
  const int descriptor_;
  std::atomic<Stage> stage_{Stage::kBeginning};
  std::atomic<Time> deadline_{Time::max()};  // the port may look before `start`
  std::atomic<bool> expired_{false};

  boost::beast::flat_buffer buffer_;                                        // received and not used
  std::function<size_t(uint64_t, boost::string_view, Error&)> take_chunk_;  // the parser calls it
  std::optional<Parser> parser_;
  HttpRequest request_;
  HeldBytes held_;
  bool counted_ = false;  // as open
  bool chunked_ = false;
  bool takes_chunks_ = false;         // the parser calls take_chunk_
  std::optional<HttpReply> refusal_;  // of a chunk
  size_t head_bytes_ = 0;             // parsed
  size_t body_bytes_ = 0;             // of a body that announces its length
  Time body_since_;
  bool stays_ = false;   // open after the reply
  bool unread_ = false;  // the client may still send

  std::string head_;  // of the reply
  HttpReply reply_;
  size_t sent_ = 0;                   // of head and body
  std::shared_ptr<Connection> self_;  // while a worker has it
  bool closed_ = false;
};

}  // namespace hotrow_server
