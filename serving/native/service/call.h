// A call on the public ports. PredictionService and GetModelStatus are answered here. Other calls
// are forwarded to the control process; message and reply pass unchanged.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/event.h"
#include "base/memory_budget.h"
#include "service/prediction_service.h"
#include "service/request_metrics.h"
#include "service/statuses.h"

namespace hotrow_server {

// The state that all calls of a server share.
struct Reception {
  // most_calls: how many calls of PredictionService run at a time; more are refused
  // (RESOURCE_EXHAUSTED), as are calls for which the budget has no room.
  Reception(const Inference& inference, const CurrentStatuses* statuses,
            std::unique_ptr<grpc::GenericStub> to_backend, int most, MemoryBudget* budget)
      : prediction(inference),
        statuses(statuses),
        backend(std::move(to_backend)),
        most_calls(most),
        budget(budget) {}

  grpc::AsyncGenericService service;
  PredictionService prediction;
  const CurrentStatuses* const statuses;
  std::unique_ptr<grpc::GenericStub> backend;
  const int most_calls;
  MemoryBudget* const budget;
  std::atomic<int> calls{0};
  std::atomic<int> forwarded{0};
  // Calls of any service that arrived and have not ended.
  std::atomic<int> open{0};
};

class Call final : public Event {
 public:
  // Waits for a call whose events come from a queue; deletes itself when the call has ended.
  Call(Reception* reception, grpc::ServerCompletionQueue* queue);

 private:
  enum class Step { kArriving, kReading, kAsking, kFinishing };

  void happen(bool ok) override;
  void take_request();
  // Whether there is memory for a request that has not arrived.
  bool has_room() const;
  void refuse_for_memory();
  void answer(PredictionService::Method method);
  void forward();
  // The forwarded call ends with this one: at its deadline, or when its client cancels it.
  std::unique_ptr<grpc::ClientContext> context_of_forwarded() const;
  void finish(const grpc::Status& status);

  Reception* const reception_;
  grpc::ServerCompletionQueue* const queue_;
  Step step_ = Step::kArriving;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  grpc::ByteBuffer request_, reply_;
  HeldBytes held_;
  bool counted_ = false;
  std::optional<RequestFacts> facts_;  // of PredictionService

  // Of a forwarded call.
  struct Asked {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::Status status;
  };
  std::unique_ptr<Asked> asked_;
};

}  // namespace hotrow_server
