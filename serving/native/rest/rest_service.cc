#include "rest/rest_service.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "base/workers.h"
#include "http/content_coding.h"
#include "rest/exchange.h"
#include "rest/json_text.h"
#include "service/backend.h"
#include "wire/answer.h"

namespace hotrow_server {
namespace {

constexpr std::string_view kApi = "/v1/";
constexpr std::string_view kLive = "/v1/health/live";
constexpr std::string_view kReady = "/v1/health/ready";
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kNotFound[] =
    "<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body>";
constexpr char kElsewhere[] = "Metrics are on the port of --admin_port only; this server has one\n";
// Pages of metrics at a time: each occupies a thread.
constexpr int kMostPages = 4;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

}  // namespace

int http_status(grpc::StatusCode code) {
  // By number of the code.
  static constexpr std::array<int, 17> kStatus = {200, 499, 500, 400, 504, 404, 409, 403, 429,
                                                  400, 409, 400, 501, 500, 503, 500, 401};
  const auto number = static_cast<size_t>(code);
  return number < kStatus.size() ? kStatus[number] : 500;
}

void RestService::answer(HttpRequest* request, HeldBytes* held, Done done) {
  const std::string path = lower(request->target);
  if (!options_.metrics_path.empty() && request->target == options_.metrics_path) {
    done(metrics());
  } else if (!path.starts_with(kApi)) {
    done({404, kNotFound, kHtml, {}});
  } else if (request->verb == "OPTIONS") {
    const std::string& origin = request->origin;
    const bool web = origin.starts_with("http://") || origin.starts_with("https://");
    done(api_reply(web ? 200 : 400, ""));
  } else if (request->verb == "GET" && path == kLive) {
    done(api_reply(200, "{\"live\": true}"));
  } else if (request->verb == "GET" && path == kReady) {
    done(ready());
  } else {
    const ExchangeContext context{&inference_, statuses_,    parses_,
                                  runs_,       options_.run, options_.max_body_bytes};
    Exchange::begin(
        context, request, held,
        [this, done = std::move(done)](int status, std::string body, HttpReply::Headers headers) {
          HttpReply reply = api_reply(status, std::move(body));
          for (auto& header : headers) reply.headers.push_back(std::move(header));
          done(std::move(reply));
        });
  }
}

HttpReply RestService::api_reply(int status, std::string body) const {
  HttpReply reply{status, std::move(body), "application/json", {}};
  if (options_.cors) {
    reply.headers = {{"Access-Control-Allow-Origin", "*"},
                     {"Access-Control-Allow-Methods", "POST, GET"},
                     {"Access-Control-Allow-Headers", "Content-Type"}};
  }
  return reply;
}

HttpReply RestService::metrics() const {
  if (options_.metrics_elsewhere) return {403, kElsewhere, "text/plain; charset=utf-8", {}};
  Workers::hand_over();
  std::string page;
  grpc::Status status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many pages at a time");
  if (pages_.fetch_add(1) < kMostPages) {
    status = status_of([&] { page = metrics_page(backend_); });
  }
  pages_.fetch_sub(1);
  if (status.ok()) return {200, std::move(page), "text/plain", {}};
  return {
      503, "The metrics cannot be read now: " + status.error_message() + "\n", "text/plain", {}};
}

HttpReply RestService::ready() const {
  const std::shared_ptr<const hotrow::Statuses> statuses = statuses_->get();
  const std::vector<std::string> waiting = waiting_models(*statuses);
  if (!waiting.empty()) {
    std::string names;
    for (const std::string& name : waiting) {
      if (!names.empty()) names += ", ";
      write_string(name, &names);
    }
    return api_reply(
        503, "{\"ready\": false, \"models_without_an_available_version\": [" + names + "]}");
  }
  if (!statuses->trouble().empty()) {
    std::string reason;
    write_string(statuses->trouble(), &reason);
    return api_reply(503, "{\"ready\": false, \"reason\": " + reason + "}");
  }
  const std::string& notices = statuses->notices();
  if (notices.size() <= 2) return api_reply(200, "{\"ready\": true}");
  return api_reply(200, "{\"ready\": true, " + notices.substr(1));
}

}  // namespace hotrow_server
