#include "rest/exchange.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/workers.h"
#include "http/content_coding.h"
#include "rest/examples_json.h"
#include "rest/json_document.h"
#include "rest/json_text.h"
#include "rest/model_json.h"
#include "rest/predict_json.h"
#include "rest/rest_service.h"
#include "wire/answer.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;

// To parse, or to compress, more than this takes more time than to wake another thread.
constexpr size_t kLargeBytes = 100'000;
// The memory of a parser that read more is not kept.
constexpr size_t kKeptBytes = 4 << 20;
// Memory for each value of a large body: 24 bytes in its parser, and those in its tensor and
// before.
constexpr size_t kValueBytes = 40;

const char* api_of(RestPath::Kind kind) {
  switch (kind) {
    case RestPath::Kind::kPredict:
      return "Predict";
    case RestPath::Kind::kClassify:
      return "Classify";
    case RestPath::Kind::kRegress:
      return "Regress";
    case RestPath::Kind::kMetadata:
      return "GetModelMetadata";
    default:
      return "";
  }
}

// Parsers of large bodies, each with megabytes of memory: no more than parse at a time.
class LargeParsers {
 public:
  std::unique_ptr<JsonParser> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<JsonParser>();
    std::unique_ptr<JsonParser> parser = std::move(idle_.back());
    idle_.pop_back();
    return parser;
  }
  void give_back(std::unique_ptr<JsonParser> parser) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(parser));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<JsonParser>> idle_;
};

LargeParsers& large_parsers() {
  static LargeParsers parsers;
  return parsers;
}

JsonParser& small_parser() {
  static thread_local JsonParser parser;
  return parser;
}

// Calls read(object) with the JSON object of a body.
template <typename Read>
void parse(std::string_view body, Read&& read) {
  if (body.size() <= kLargeBytes) {
    small_parser().parse(body, read);
    return;
  }
  std::unique_ptr<JsonParser> parser = large_parsers().take();
  parser->parse(body, read);
  if (body.size() <= kKeptBytes) large_parsers().give_back(std::move(parser));
}

// The memory that a body takes when it is parsed: its strings, and its values, most of which have a
// comma each.
size_t parsed_bytes(std::string_view body) {
  constexpr size_t kBlock = 128;  // so that bytes count, 16 or more at a time
  size_t values = 0;
  for (size_t at = 0; at < body.size(); at += kBlock) {
    uint8_t commas = 0;
    for (const char byte : body.substr(at, kBlock)) commas += byte == ',' ? 1 : 0;
    values += commas;
  }
  return body.size() + kValueBytes * values;
}

grpc::ByteBuffer bytes_of(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

std::vector<JsonInput> inputs_of(const Signature& signature, const std::string& name) {
  if (signature.feeds().empty()) {
    refuse("Failed to get input map for signature: " + (name.empty() ? "DEFAULT" : name));
  }
  std::vector<JsonInput> inputs;
  for (const Signature::Feed& feed : signature.feeds()) inputs.push_back({feed.alias, feed.type});
  return inputs;
}

}  // namespace

void Exchange::begin(const ExchangeContext& context, HttpRequest* request, HeldBytes* held,
                     Done done) {
  std::make_shared<Exchange>(context, request, held, std::move(done))->work();
}

Exchange::Exchange(const ExchangeContext& context, HttpRequest* request, HeldBytes* held, Done done)
    : context_(context), request_(request), held_(held), done_(std::move(done)), facts_("", true) {}

void Exchange::work() {
  const grpc::Status status = status_of([&] {
    path_ = read_path(request_->verb, request_->target);
    facts_.api = api_of(path_.kind);
    facts_.model = path_.spec.name();
    if (!path_.is_inference()) reply_ = look();
  });
  if (!status.ok() || !path_.is_inference()) return finish(status, {});
  is_large_ = request_->body.size() > kLargeBytes || !request_->content_encoding.empty();
  if (is_large_) {
    in_turn(context_.parses, &Exchange::plan);
  } else {
    plan();
  }
}

std::string Exchange::look() {
  const std::shared_ptr<const hotrow::Statuses> statuses = context_.statuses->get();
  switch (path_.kind) {
    case RestPath::Kind::kStatus:
      return status_json(model_status(*statuses, path_.spec));
    case RestPath::Kind::kModels:
      return models_json(*statuses);
    default: {
      serving::GetModelMetadataRequest request;
      *request.mutable_model_spec() = path_.spec;
      request.add_metadata_field("signature_def");
      serving::GetModelMetadataResponse response;
      context_.inference->metadata(request, &facts_, &response);
      return metadata_json(response);
    }
  }
}

void Exchange::plan() {
  if (is_large_) Workers::hand_over();
  const grpc::Status status = status_of([&] {
    uncompress();
    if (is_large_) hold(parsed_bytes(request_->body.view()));
    switch (path_.kind) {
      case RestPath::Kind::kClassify:
        plan_examples(&Inference::classify, &write_classes, LogField::kClassify);
        return;
      case RestPath::Kind::kRegress:
        plan_examples(&Inference::regress, &write_values, LogField::kRegress);
        return;
      default:
        plan_predict();
    }
  });
  request_->body = Body();
  turn_.reset();
  if (!status.ok()) return finish(status, {});
  if (plan_.way.servable->occupies(plan_.run)) {
    in_turn(context_.runs, &Exchange::run);
  } else {
    run();
  }
}

void Exchange::uncompress() {
  if (request_->content_encoding.empty()) return;
  std::optional<Body> plain;
  try {
    plain =
        uncompressed(request_->body.view(), request_->content_encoding, context_.max_body_bytes);
  } catch (const BodyTooLong&) {
    is_too_long_ = true;
    throw;
  }
  if (!plain.has_value()) return;
  hold(plain->size());
  request_->body = std::move(*plain);
}

void Exchange::hold(size_t bytes) {
  if (!held_->grow(bytes)) {
    throw Refused(grpc::StatusCode::UNAVAILABLE, held_->budget().refusal());
  }
}

void Exchange::plan_predict() {
  parse(request_->body.view(), [this](const auto& object) {
    const std::string name = signature_name(object);
    PredictRequest request;
    request.spec = path_.spec;
    request.spec->set_signature_name(name);
    Routes::Route way = context_.inference->route(*request.spec, &facts_);
    const Signature* const signature = way.servable->signature(resolved(name));
    if (signature == nullptr) {
      refuse("Serving signature name: \"" + resolved(name) + "\" not found in signature def");
    }
    JsonForm form{};
    request.inputs = read_inputs(object, inputs_of(*signature, name), &form);
    const bool logged = way.log != nullptr;
    if (logged) logged_request_ = write_predict_request(request);
    plan_ = context_.inference->predict(
        std::move(way), &request, &facts_,
        [this, form, logged](const std::vector<NamedOutput>& outputs, const std::string& spec) {
          reply_ = write_outputs(outputs, form);
          if (logged) logged_reply_ = write_predict_response(outputs, false, spec);
        });
    log_as(LogField::kPredict);
  });
}

template <typename Request, typename Response>
void Exchange::plan_examples(Plan (Inference::*method)(const Request&, RequestFacts*, Response*)
                                 const,
                             Write<Response> write, LogField field) {
  Request request;
  *request.mutable_model_spec() = path_.spec;
  parse(request_->body.view(), [&request](const auto& object) {
    request.mutable_model_spec()->set_signature_name(signature_name(object));
    *request.mutable_input() = read_examples(object);
  });
  const auto response = std::make_shared<Response>();
  plan_ = (context_.inference->*method)(request, &facts_, response.get());
  const bool logged = plan_.way.log != nullptr;
  if (logged) logged_request_ = bytes_of(request);
  plan_.reply = [this, response, write, logged,
                 inner = std::move(plan_.reply)](const Results& results) {
    inner(results);
    reply_ = write(response->result());
    if (logged) logged_reply_ = bytes_of(*response);
  };
  log_as(field);
}

void Exchange::log_as(LogField field) {
  if (plan_.way.log == nullptr) return;
  plan_.log = [this, field, way = plan_.way] {
    log_answer(field, way, facts_, logged_request_, logged_reply_);
  };
}

void Exchange::run() {
  answer_plan(std::move(plan_), Clock::now() + context_.run, &facts_,
              [self = shared_from_this()](const grpc::Status& status, const Metadata& metadata) {
                self->finish(status, metadata);
              });
}

void Exchange::in_turn(Turns* turns, void (Exchange::*next)()) {
  turns->take([self = shared_from_this(), next](Turns::Turn turn) {
    if (turn == nullptr) {
      return self->finish({grpc::StatusCode::UNAVAILABLE,
                           "No thread was free for the request in time; try again later, or start "
                           "the server with more --rest_api_num_threads"},
                          {});
    }
    self->turn_ = std::move(turn);
    (self.get()->*next)();
  });
}

void Exchange::finish(const grpc::Status& status, const Metadata& metadata) {
  count_request(facts_, status.error_code());
  HttpReply::Headers headers(metadata.begin(), metadata.end());
  std::string body = status.ok() ? std::move(reply_) : error_text(status.error_message());
  if (body.size() > kLargeBytes && !request_->accept_encoding.empty()) Workers::hand_over();
  const char* coding = nullptr;
  // Without memory for it, the reply goes as it is.
  (void)status_of([&] { coding = compress(&body, request_->accept_encoding); });
  if (coding != nullptr) {
    headers.emplace_back("Content-Encoding", coding);
    headers.emplace_back("Vary", "Accept-Encoding");
  }
  turn_.reset();
  done_(is_too_long_ ? 413 : http_status(status.error_code()), std::move(body), std::move(headers));
}

}  // namespace hotrow_server
