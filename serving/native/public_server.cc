#include "public_server.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include "refused.h"

namespace hotrow_server {
namespace {

constexpr int kMostThreads = 1024;

}  // namespace

PublicServer::PublicServer(const hotrow::ListenRequest& request, const CurrentRoutes& routes)
    : request_(request),
      prediction_(Inference(routes, {request.tensor_content(), request.check_method_name()})),
      forwarding_(request.backend()) {
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  // Otherwise a second server would share the port and take half of the requests.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A request that finds no thread is refused (RESOURCE_EXHAUSTED).
  grpc::ResourceQuota quota("requests");
  quota.SetMaxThreads(request.max_threads() > 0 ? request.max_threads() : kMostThreads);
  builder.SetResourceQuota(quota);
  const auto credentials = grpc::InsecureServerCredentials();
  if (request.port() > 0) {
    builder.AddListeningPort("0.0.0.0:" + std::to_string(request.port()), credentials, &port_);
  }
  for (const std::string& path : request.socket_paths()) {
    builder.AddListeningPort("unix:" + path, credentials);
  }
  builder.RegisterService(&prediction_);
  builder.RegisterCallbackGenericService(&forwarding_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || (request.port() > 0 && port_ == 0)) {
    throw Refused(grpc::StatusCode::UNAVAILABLE,
                  "port " + std::to_string(request.port()) + " cannot be listened on");
  }
}

}  // namespace hotrow_server
