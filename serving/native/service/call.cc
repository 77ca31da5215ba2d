#include "service/call.h"

#include <chrono>

#include "wire/answer.h"

namespace hotrow_server {
namespace {

// The heartbeat of the control process (data_plane/heartbeat.py). It takes the way of a prediction
// up to the model.
constexpr char kBeat[] = "/hotrow.Server/Beat";

// Methods of the processes of this server for each other.
constexpr char kInternal[] = "/hotrow.";

// Calls of other services at a time; more are refused.
constexpr int kMostForwarded = 64;
// The limit of a forwarded call without a deadline.
constexpr auto kLongestForwarded = std::chrono::hours(1);

}  // namespace

Call::Call(Reception* reception, grpc::ServerCompletionQueue* queue)
    : reception_(reception), queue_(queue), stream_(&context_), held_(reception->budget) {
  reception_->service.RequestCall(&context_, &stream_, queue_, queue_, this);
}

void Call::happen(bool ok) {
  switch (step_) {
    case Step::kArriving:
      if (!ok) {  // the server shuts down
        delete this;
        return;
      }
      reception_->open.fetch_add(1, std::memory_order_relaxed);
      new Call(reception_, queue_);
      if (!has_room()) {
        refuse_for_memory();
        return;
      }
      step_ = Step::kReading;
      stream_.Read(&request_, this);
      return;
    case Step::kReading:
      if (ok) {
        take_request();
      } else {
        finish({grpc::StatusCode::INTERNAL, "the call has no request"});
      }
      return;
    case Step::kAsking:
      reception_->forwarded.fetch_sub(1, std::memory_order_relaxed);
      finish(asked_->status);
      return;
    case Step::kFinishing:
      reception_->open.fetch_sub(1, std::memory_order_relaxed);
      delete this;
      return;
  }
}

bool Call::has_room() const {
  return context_.method() == kBeat || reception_->budget->has_room(1);
}

void Call::refuse_for_memory() {
  const auto method = PredictionService::method(context_.method());
  if (method.has_value()) facts_.emplace(PredictionService::name(*method), false);
  finish({grpc::StatusCode::RESOURCE_EXHAUSTED, reception_->budget->refusal()});
}

void Call::take_request() {
  if (context_.method() == kBeat) {
    const grpc::Slice nothing;
    reply_ = grpc::ByteBuffer(&nothing, 1);
    finish(grpc::Status::OK);
    return;
  }
  if (!held_.grow(request_.Length())) {
    refuse_for_memory();
    return;
  }
  const auto method = PredictionService::method(context_.method());
  if (!method.has_value()) {
    if (context_.method() == kGetModelStatus) {
      finish(answer_model_status(*reception_->statuses->get(), &request_, &reply_));
    } else if (context_.method().starts_with(kInternal)) {
      finish({grpc::StatusCode::UNIMPLEMENTED, "Method not found!"});
    } else {
      forward();
    }
    return;
  }
  counted_ = true;
  facts_.emplace(PredictionService::name(*method), false);
  if (reception_->calls.fetch_add(1, std::memory_order_relaxed) >= reception_->most_calls) {
    finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "Server Threadpool Exhausted"});
    return;
  }
  reception_->prediction.answer(*method, &context_, &request_, &reply_, &*facts_,
                                [this](const grpc::Status& status) { finish(status); });
}

void Call::forward() {
  if (reception_->forwarded.fetch_add(1, std::memory_order_relaxed) >= kMostForwarded) {
    reception_->forwarded.fetch_sub(1, std::memory_order_relaxed);
    finish({grpc::StatusCode::RESOURCE_EXHAUSTED,
            "Too many calls at a time of other services than PredictionService"});
    return;
  }
  step_ = Step::kAsking;
  asked_ = std::make_unique<Asked>();
  asked_->context = context_of_forwarded();
  asked_->reader = reception_->backend->PrepareUnaryCall(asked_->context.get(), context_.method(),
                                                         request_, queue_);
  asked_->reader->StartCall();
  asked_->reader->Finish(&reply_, &asked_->status, this);
}

std::unique_ptr<grpc::ClientContext> Call::context_of_forwarded() const {
  auto context = grpc::ClientContext::FromServerContext(context_);
  const gpr_timespec deadline = context_.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    context->set_deadline(std::chrono::system_clock::now() + kLongestForwarded);
  } else {
    context->set_deadline(deadline);
  }
  for (const auto& [key, value] : context_.client_metadata()) {
    // Copies only our own metadata: the transport creates its own.
    if (key.starts_with("x-hotrow-")) {
      context->AddMetadata({key.data(), key.size()}, {value.data(), value.size()});
    }
  }
  return context;
}

void Call::finish(const grpc::Status& status) {
  if (facts_.has_value()) count_request(*facts_, status.error_code());
  if (counted_) reception_->calls.fetch_sub(1, std::memory_order_relaxed);
  request_.Clear();
  held_.release();
  if (status.ok()) held_.add(reply_.Length());
  step_ = Step::kFinishing;
  if (status.ok()) {
    stream_.WriteAndFinish(reply_, grpc::WriteOptions(), status, this);
  } else {
    stream_.Finish(status, this);
  }
}

}  // namespace hotrow_server
