#include "rest/rest_port.h"

#include <malloc.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "service/backend.h"

namespace hotrow_server {
namespace {

using std::chrono::milliseconds;

constexpr auto kLook = milliseconds(2);
// Runs for each CPU, as TF Serving's threads.
constexpr int kTurns = 4;

int cpus() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

std::optional<HttpTls> tls_of(const hotrow::ListenRequest::Rest& rest) {
  if (!rest.has_tls()) return std::nullopt;
  const hotrow::ListenRequest::Tls& tls = rest.tls();
  return HttpTls{tls.server_key(), tls.server_cert(),
                 tls.client_verify() ? tls.custom_ca() : std::string()};
}

RestOptions options_of(const hotrow::ListenRequest::Rest& rest) {
  return {milliseconds(rest.run_millis()), static_cast<size_t>(rest.max_body_bytes()), rest.cors(),
          rest.metrics_path(), rest.metrics_elsewhere()};
}

}  // namespace

RestPort::RestPort(const hotrow::ListenRequest& request, const CurrentRoutes& routes,
                   const CurrentStatuses* statuses, MemoryBudget* budget)
    : backend_(backend_at(request.backend())),
      parses_(cpus(), milliseconds(request.rest().run_millis()),
              [this](Event* event) { server_.enqueue(event); }),
      runs_(request.rest().max_threads() > 0 ? request.rest().max_threads() : kTurns * cpus(),
            milliseconds(request.rest().run_millis()),
            [this](Event* event) { server_.enqueue(event); }),
      service_(Inference(routes, {request.tensor_content(), request.check_method_name()}), statuses,
               backend_.get(), &parses_, &runs_, options_of(request.rest())),
      server_(request.rest().port(), tls_of(request.rest()),
              {static_cast<size_t>(request.rest().max_body_bytes()),
               milliseconds(request.rest().read_millis())},
              budget, &service_) {}

void RestPort::begin() {
  server_.begin([this](Connection::Time now) {
    parses_.check_time(now);
    runs_.check_time(now);
    // The allocator keeps what large bodies took.
    if (server_.budget()->has_ebbed()) malloc_trim(0);
  });
}

void RestPort::end() { server_.end(); }

void RestPort::wait_until_ended(Clock::time_point deadline) const {
  while (server_.open() > 0 && Clock::now() < deadline) std::this_thread::sleep_for(kLook);
}

}  // namespace hotrow_server
