// A request to a model over REST, from its path and body to its reply.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "http/message.h"
#include "http/turns.h"
#include "rest/path.h"
#include "service/answering.h"
#include "service/inference.h"
#include "service/statuses.h"

namespace hotrow_server {

// What all requests share.
struct ExchangeContext {
  const Inference* inference;
  const CurrentStatuses* statuses;
  Turns* parses;  // of large bodies, which take a CPU
  Turns* runs;    // of models, which may wait, too
  std::chrono::milliseconds run;
  size_t max_body_bytes;
};

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  using Done = std::function<void(int status, std::string body, HttpReply::Headers headers)>;

  // Answers a request below /v1/. Calls `done` once, at once or later from another thread; request
  // and `held` live until then.
  static void begin(const ExchangeContext& context, HttpRequest* request, HeldBytes* held,
                    Done done);

  Exchange(const ExchangeContext& context, HttpRequest* request, HeldBytes* held, Done done);

 private:
  template <typename Response>
  using Write = std::string (*)(const std::decay_t<decltype(std::declval<Response>().result())>&);

  void work();
  // The reply to what needs no run.
  std::string look();
  // Reads the body and plans the run.
  void plan();
  void uncompress();
  // Counts memory. Fails when there is no room.
  void hold(size_t bytes);
  void plan_predict();
  template <typename Request, typename Response>
  void plan_examples(Plan (Inference::*method)(const Request&, RequestFacts*, Response*) const,
                     Write<Response> write, LogField log);
  void log_as(LogField field);
  void run();
  // Calls next with a turn.
  void in_turn(Turns* turns, void (Exchange::*next)());
  void finish(const grpc::Status& status, const Metadata& metadata);

  const ExchangeContext context_;
  HttpRequest* const request_;
  HeldBytes* const held_;
  const Done done_;
  RestPath path_;
  RequestFacts facts_;
  bool is_large_ = false;
  bool is_too_long_ = false;  // uncompressed
  Turns::Turn turn_;          // of what is under way; null: it has none
  Plan plan_;
  std::string reply_;
  grpc::ByteBuffer logged_request_, logged_reply_;  // as gRPC would have sent them
};

}  // namespace hotrow_server
