#include "control/service.h"

#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/log_line.h"
#include "base/metrics.h"
#include "base/thread_priority.h"
#include "rest/rest_port.h"
#include "service/public_server.h"
#include "service/row_metrics.h"
#include "service/warm_up.h"
#include "session/tensorflow_metrics.h"
#include "wire/answer.h"

namespace hotrow_server {
namespace {

// The interval between checks of whether a servable is still used.
constexpr auto kRetry = std::chrono::milliseconds(1);
// How long to wait for requests to a servable that has no route.
constexpr auto kRest = std::chrono::seconds(30);
// How long to wait for the records of the last requests, after they ended.
constexpr auto kWriting = std::chrono::seconds(2);

[[noreturn]] void refuse_state(const std::string& message) {
  throw Refused(grpc::StatusCode::FAILED_PRECONDITION, message);
}

}  // namespace

ControlService::ControlService(std::string ops) : ops_(std::move(ops)) {}
ControlService::~ControlService() = default;

hotrow::Reply ControlService::answer(const hotrow::Request& request) {
  hotrow::Reply reply;
  const grpc::Status status = status_of([&] {
    switch (request.call_case()) {
      case hotrow::Request::kLoad:
        load(request.load());
        return;
      case hotrow::Request::kUnload:
        unload(request.unload());
        return;
      case hotrow::Request::kSetRoutes:
        set_routes(request.set_routes());
        return;
      case hotrow::Request::kListen:
        *reply.mutable_listen() = listen(request.listen());
        return;
      case hotrow::Request::kDrain:
        drain(request.drain());
        return;
      case hotrow::Request::kDescribe:
        *reply.mutable_describe() = describe();
        return;
      case hotrow::Request::kStats:
        write_stats(reply.mutable_stats());
        add_row_stats(reply.mutable_stats());
        add_tensorflow_stats(reply.mutable_stats());
        return;
      case hotrow::Request::kSetBatching:
        set_batching(request.set_batching());
        return;
      case hotrow::Request::kSetTopology:
        set_topology(request.set_topology());
        return;
      case hotrow::Request::kShow:
        show(request.show());
        return;
      case hotrow::Request::kSetStale:
        set_stale(request.set_stale());
        return;
      case hotrow::Request::kSetStatuses:
        statuses_.set(request.set_statuses());
        return;
      case hotrow::Request::CALL_NOT_SET:
        throw Refused(grpc::StatusCode::UNIMPLEMENTED, "a call that this server does not know");
    }
  });
  reply.set_code(status.error_code());
  reply.set_message(status.error_message());
  return reply;
}

void ControlService::add_tensorflow_stats(hotrow::StatsReply* reply) {
  try {
    write_tensorflow_stats(ops_, reply);
  } catch (const Refused& error) {
    // The reply then has only our own metrics.
    static std::once_flag said;
    std::call_once(said, [&] {
      log_line(Level::kWarning, "control/service.cc",
               std::string("TensorFlow's own metrics cannot be read: ") + error.what());
    });
  }
}

void ControlService::load(const hotrow::LoadRequest& request) {
  const std::string number = std::to_string(request.servable());
  {
    const std::lock_guard lock(mutex_);
    // Reserves its number, so that no other request loads it twice.
    if (!servables_.emplace(request.servable(), nullptr).second) {
      refuse_state("servable " + number + " was loaded before");
    }
  }
  try {
    lower_priority();
    auto servable = std::make_shared<Servable>(request, ops_, &batch_threads_);
    warm_up(request, servable);
    if (request.has_shown()) merging_.want(servable->rows(), request.version());
    const std::lock_guard lock(mutex_);
    servables_[request.servable()] = std::move(servable);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    servables_.erase(request.servable());
    throw;
  }
}

std::shared_ptr<Servable>& ControlService::loaded(uint64_t servable) {
  const auto found = servables_.find(servable);
  if (found == servables_.end() || found->second == nullptr) {
    throw Refused(grpc::StatusCode::NOT_FOUND,
                  "no servable " + std::to_string(servable) + " is loaded");
  }
  return found->second;
}

void ControlService::refuse_routed(uint64_t servable) {
  for (const auto& model : routes_.get()->proto().models()) {
    for (const auto& version : model.versions()) {
      if (version.servable() == servable) {
        refuse_state("routes lead to servable " + std::to_string(servable));
      }
    }
  }
}

void ControlService::unload(const hotrow::UnloadRequest& request) {
  std::shared_ptr<Servable> servable;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Servable>& found = loaded(request.servable());
    refuse_routed(request.servable());
    servable = std::move(found);
    servables_.erase(request.servable());
  }
  lower_priority();
  // Requests still hold old tables of routes. Waits for them, so that the servable is freed here
  // and not in a request.
  while (servable.use_count() > 1) std::this_thread::sleep_for(kRetry);
  servable.reset();
  malloc_trim(0);
}

void ControlService::set_routes(const hotrow::Routes& routes) {
  const std::lock_guard lock(mutex_);
  routes_.set(
      std::make_shared<const Routes>(routes, servables_, request_logs(routes, &record_writer_)));
}

void ControlService::set_batching(const hotrow::SetBatching& batching) {
  batch_threads_.resize(batching.threads());
  const std::lock_guard lock(mutex_);
  for (const auto& [number, options] : batching.servables()) {
    const auto found = servables_.find(number);
    if (found != servables_.end() && found->second != nullptr) {
      found->second->set_batching(options);
    }
  }
}

void ControlService::set_topology(const hotrow::SetTopology& request) {
  const std::lock_guard lock(mutex_);
  loaded(request.servable())->set_topology(request.topology());
}

void ControlService::set_stale(const hotrow::SetStale& request) {
  const std::lock_guard lock(mutex_);
  loaded(request.servable())->set_stale(request.stale());
}

void ControlService::show(const hotrow::Show& request) {
  lower_priority();
  wait_for_rest(request);
  // One at a time: a control process that died may have sent the same request.
  const std::lock_guard showing(showing_);
  std::shared_ptr<Servable> servable;
  {
    const std::lock_guard lock(mutex_);
    servable = loaded(request.servable());
    if (!servable->shows_at_once(request.cut())) refuse_routed(request.servable());
  }
  servable->show(request.cut(), request.forget_cached());
  merging_.want(servable->rows(), servable->request().version());
  const std::lock_guard lock(mutex_);
  servable->note_shown(request.cut());
}

// Waits until no request uses a servable that will show a cut, unless it can show the cut while
// requests run.
void ControlService::wait_for_rest(const hotrow::Show& request) {
  std::weak_ptr<Servable> servable;  // so that several threads may wait
  {
    const std::lock_guard lock(mutex_);
    servable = loaded(request.servable());
    if (servable.lock()->shows_at_once(request.cut())) return;
    refuse_routed(request.servable());
  }
  const auto patience = std::chrono::steady_clock::now() + kRest;
  // One reference is in the list of servables.
  while (servable.use_count() > 1) {
    if (std::chrono::steady_clock::now() > patience) {
      throw Refused(grpc::StatusCode::DEADLINE_EXCEEDED,
                    "requests to servable " + std::to_string(request.servable()) +
                        " still run; it cannot take the cut yet");
    }
    std::this_thread::sleep_for(kRetry);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
}

void ControlService::add_row_stats(hotrow::StatsReply* reply) {
  std::vector<std::shared_ptr<const Servable>> servables;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, servable] : servables_) {
      if (servable != nullptr) servables.push_back(servable);
    }
  }
  write_row_stats(servables, reply);
}

hotrow::ListenReply ControlService::listen(const hotrow::ListenRequest& request) {
  const std::lock_guard lock(mutex_);
  if (server_ != nullptr) refuse_state("it listens already");
  if (drained_) refuse_state("it is ending");
  auto budget = std::make_unique<MemoryBudget>(request.request_memory_bytes());
  std::unique_ptr<RestPort> rest;
  if (request.has_rest()) {
    rest = std::make_unique<RestPort>(request, routes_, &statuses_, budget.get());
  }
  server_ = std::make_unique<PublicServer>(request, routes_, &statuses_, budget.get());
  budget_ = std::move(budget);
  rest_ = std::move(rest);
  if (rest_ != nullptr) rest_->begin();
  hotrow::ListenReply reply;
  reply.set_port(server_->port());
  return reply;
}

void ControlService::drain(const hotrow::DrainRequest& request) {
  const std::lock_guard lock(mutex_);
  const auto deadline = Clock::now() + std::chrono::milliseconds(request.most_millis());
  if (rest_ != nullptr) rest_->end();
  if (server_ != nullptr) server_->drain(deadline);
  if (rest_ != nullptr) rest_->wait_until_ended(deadline);
  record_writer_.flush(kWriting);
  drained_ = true;
}

hotrow::DescribeReply ControlService::describe() {
  const std::lock_guard lock(mutex_);
  hotrow::DescribeReply reply;
  for (const auto& [number, servable] : servables_) {
    if (servable == nullptr) continue;
    auto* const entry = reply.add_servables();
    *entry->mutable_load() = servable->loaded_by();
  }
  reply.set_process_id(getpid());
  *reply.mutable_routes() = routes_.get()->proto();
  if (server_ != nullptr) *reply.mutable_listening() = server_->request();
  return reply;
}

void ControlService::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void ControlService::wait_until_ended() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_; });
}

}  // namespace hotrow_server
