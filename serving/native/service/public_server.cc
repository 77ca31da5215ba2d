#include "service/public_server.h"

#include <grpcpp/server_builder.h>

#include <chrono>
#include <future>
#include <thread>

#include "service/backend.h"

namespace hotrow_server {
namespace {

constexpr int kMostCalls = 1024;
// Calls that can arrive at the same time without waiting for a thread.
constexpr int kArriving = 32;
// A drain ends after this time without an open call: replies are still being sent, and calls may
// have arrived just before the end.
constexpr auto kQuiet = std::chrono::milliseconds(200);
constexpr auto kLook = std::chrono::milliseconds(2);
// The time of calls to end after they were cancelled at the deadline; a run that is in the thread
// of its request may never do so.
constexpr auto kCancelled = std::chrono::milliseconds(500);

// Of a call: it arrives, its request is read, its reply is sent.
constexpr int kEventsPerCall = 3;

class CallEvents final : public EventSource {
 public:
  explicit CallEvents(grpc::CompletionQueue* queue) : queue_(queue) {}
  bool take(std::chrono::milliseconds patience, Taken* taken) override {
    void* tag;
    const auto got = patience.count() == 0
                         ? queue_->AsyncNext(&tag, &taken->ok, gpr_inf_past(GPR_CLOCK_MONOTONIC))
                         : queue_->AsyncNext(&tag, &taken->ok, Clock::now() + patience);
    taken->event = static_cast<Event*>(tag);
    return got != grpc::CompletionQueue::TIMEOUT;
  }

 private:
  grpc::CompletionQueue* queue_;
};

}  // namespace

PublicServer::PublicServer(const hotrow::ListenRequest& request, const CurrentRoutes& routes,
                           MemoryBudget* budget)
    : request_(request),
      listening_(request_),
      reception_(Inference(routes, {request.tensor_content(), request.check_method_name()}),
                 backend_at(request.backend()),
                 request.max_threads() > 0 ? request.max_threads() : kMostCalls, budget) {
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  listening_.prepare(&builder);
  builder.RegisterAsyncGenericService(&reception_.service);
  queue_ = builder.AddCompletionQueue();
  reception_.queue = queue_.get();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    queue_->Shutdown();
    void* tag;
    for (bool ok; queue_->Next(&tag, &ok);) continue;
  }
  listening_.check(server_.get());
  for (int i = 0; i < kArriving; ++i) new Call(&reception_);
  events_ = std::make_unique<CallEvents>(queue_.get());
  workers_ = std::make_unique<Workers>(events_.get(), kEventsPerCall);
}

void PublicServer::drain(Clock::time_point deadline) {
  std::promise<void> ended;
  std::future<void> end = ended.get_future();
  std::thread([this, deadline, ended = std::move(ended)]() mutable {
    server_->Shutdown(deadline);
    ended.set_value();
  }).detach();
  for (auto quiet = kQuiet; quiet > quiet.zero();) {
    if (end.wait_for(kLook) == std::future_status::ready) return;
    if (Clock::now() - kCancelled > deadline) return;
    quiet = reception_.open.load(std::memory_order_relaxed) == 0 ? quiet - kLook : kQuiet;
  }
}

}  // namespace hotrow_server
