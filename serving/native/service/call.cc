#include "service/call.h"

#include "wire/answer.h"

namespace hotrow_server {
namespace {

// The heartbeat of the control process (data_plane/heartbeat.py). It takes the way of a prediction
// up to the model.
constexpr char kBeat[] = "/hotrow.Server/Beat";

}  // namespace

Call::Call(Reception* reception) : reception_(reception), stream_(&context_) {
  reception_->service.RequestCall(&context_, &stream_, reception_->queue, reception_->queue, this);
}

void Call::happen(bool ok) {
  switch (step_) {
    case Step::kArriving:
      if (!ok) {  // the server shuts down
        delete this;
        return;
      }
      reception_->open.fetch_add(1, std::memory_order_relaxed);
      new Call(reception_);
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
      finish(asked_->status);
      return;
    case Step::kFinishing:
      reception_->open.fetch_sub(1, std::memory_order_relaxed);
      delete this;
      return;
  }
}

void Call::take_request() {
  if (context_.method() == kBeat) {
    const grpc::Slice nothing;
    reply_ = grpc::ByteBuffer(&nothing, 1);
    finish(grpc::Status::OK);
    return;
  }
  const auto method = PredictionService::method(context_.method());
  if (!method.has_value()) {
    forward();
    return;
  }
  counted_ = true;
  facts_.emplace(PredictionService::name(*method), from_gateway(context_));
  if (reception_->calls.fetch_add(1, std::memory_order_relaxed) >= reception_->most_calls) {
    finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "Server Threadpool Exhausted"});
    return;
  }
  reception_->prediction.answer(*method, &context_, &request_, &reply_, &*facts_,
                                [this](const grpc::Status& status) { finish(status); });
}

void Call::forward() {
  step_ = Step::kAsking;
  asked_ = std::make_unique<Asked>();
  asked_->context.set_deadline(context_.raw_deadline());
  for (const auto& [key, value] : context_.client_metadata()) {
    // Copies only our own metadata: the transport creates its own.
    if (key.starts_with("x-hotrow-")) {
      asked_->context.AddMetadata({key.data(), key.size()}, {value.data(), value.size()});
    }
  }
  asked_->reader = reception_->backend->PrepareUnaryCall(&asked_->context, context_.method(),
                                                         request_, reception_->queue);
  asked_->reader->StartCall();
  asked_->reader->Finish(&reply_, &asked_->status, this);
}

void Call::finish(const grpc::Status& status) {
  if (facts_.has_value()) count_request(*facts_, status.error_code());
  if (counted_) reception_->calls.fetch_sub(1, std::memory_order_relaxed);
  request_.Clear();
  step_ = Step::kFinishing;
  if (status.ok()) {
    stream_.WriteAndFinish(reply_, grpc::WriteOptions(), status, this);
  } else {
    stream_.Finish(status, this);
  }
}

}  // namespace hotrow_server
