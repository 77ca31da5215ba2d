#include "service/backend.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <vector>

#include "base/refused.h"

namespace hotrow_server {
namespace {

// Answered by the control process (serving/lifecycle/model_service.py).
constexpr char kMetricsPage[] = "/hotrow.Control/MetricsPage";
constexpr auto kPageTime = std::chrono::seconds(5);

}  // namespace

std::unique_ptr<grpc::GenericStub> backend_at(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  return std::make_unique<grpc::GenericStub>(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

std::string metrics_page(grpc::GenericStub* backend) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPageTime);
  grpc::CompletionQueue queue;
  const grpc::Slice nothing;
  const auto call =
      backend->PrepareUnaryCall(&context, kMetricsPage, grpc::ByteBuffer(&nothing, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  if (!status.ok()) throw Refused(status.error_code(), status.error_message());
  std::vector<grpc::Slice> slices;
  reply.Dump(&slices);
  std::string page;
  for (const grpc::Slice& slice : slices) {
    page.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return page;
}

}  // namespace hotrow_server
