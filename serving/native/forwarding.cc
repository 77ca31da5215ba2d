#include "forwarding.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

namespace hotrow_server {
namespace {

// One call: reads the request, asks, writes the reply.
class Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(grpc::GenericCallbackServerContext* context, grpc::GenericStub* stub)
      : stub_(stub), method_(context->method()) {
    client_.set_deadline(context->deadline());
    for (const auto& [key, value] : context->client_metadata()) {
      // Ours alone: those of the transport are made anew.
      if (key.starts_with("x-hotrow-")) {
        client_.AddMetadata({key.data(), key.size()}, {value.data(), value.size()});
      }
    }
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish({grpc::StatusCode::INTERNAL, "the call has no request"});
      return;
    }
    asked_ = true;
    stub_->UnaryCall(&client_, method_, {}, &request_, &reply_, [this](grpc::Status status) {
      if (!status.ok()) {
        Finish(std::move(status));
        return;
      }
      StartWriteAndFinish(&reply_, {}, std::move(status));
    });
  }
  void OnCancel() override {
    if (asked_) client_.TryCancel();
  }
  void OnDone() override { delete this; }

 private:
  grpc::GenericStub* stub_;
  std::string method_;
  grpc::ClientContext client_;
  grpc::ByteBuffer request_, reply_;
  std::atomic<bool> asked_{false};
};

std::shared_ptr<grpc::Channel> channel_to(const std::string& backend) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  return grpc::CreateCustomChannel(backend, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

Forwarding::Forwarding(const std::string& backend) : stub_(channel_to(backend)) {}

grpc::ServerGenericBidiReactor* Forwarding::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new Call(context, &stub_);
}

}  // namespace hotrow_server
