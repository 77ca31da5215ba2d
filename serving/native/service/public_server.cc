#include "service/public_server.h"

#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <limits>
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

// gRPC reads a message whole before it is counted; one beyond the budget is not read.
int longest_message(int64_t budget) {
  constexpr int64_t kLeast = 64 << 20, kMost = std::numeric_limits<int>::max();
  return budget > 0 ? static_cast<int>(std::clamp(budget, kLeast, kMost)) : -1;
}

// One for each CPU: threads that share a queue also share its one poller, and hand it over for each
// event. With one queue, two CPUs answered 9,000 requests/s of one row from 64 clients, with two
// 13,500; at 70 % of either, p99 was 50 times p50, and is 7 times.
size_t lane_count() {
  constexpr unsigned kMost = 16;
  return std::clamp(std::thread::hardware_concurrency(), 1u, kMost);
}

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
                           const CurrentStatuses* statuses, MemoryBudget* budget)
    : request_(request),
      listening_(request_),
      reception_(Inference(routes, {request.tensor_content(), request.check_method_name()}),
                 statuses, backend_at(request.backend()),
                 request.max_threads() > 0 ? request.max_threads() : kMostCalls, budget) {
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(longest_message(request.request_memory_bytes()));
  builder.SetMaxSendMessageSize(-1);
  listening_.prepare(&builder);
  builder.RegisterAsyncGenericService(&reception_.service);
  lanes_.resize(lane_count());
  for (Lane& lane : lanes_) lane.queue = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    for (Lane& lane : lanes_) {
      lane.queue->Shutdown();
      void* tag;
      for (bool ok; lane.queue->Next(&tag, &ok);) continue;
    }
  }
  listening_.check(server_.get());
  for (Lane& lane : lanes_) {
    for (int i = 0; i < kArriving; ++i) new Call(&reception_, lane.queue.get());
    lane.events = std::make_unique<CallEvents>(lane.queue.get());
    lane.workers = std::make_unique<Workers>(lane.events.get(), kEventsPerCall);
  }
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
