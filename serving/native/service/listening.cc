#include "service/listening.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>

#include <charconv>
#include <memory>
#include <string>

#include "base/refused.h"

namespace hotrow_server {
namespace {

std::shared_ptr<grpc::ServerCredentials> credentials_of(const hotrow::ListenRequest& request) {
  if (!request.has_tls()) return grpc::InsecureServerCredentials();
  const hotrow::ListenRequest::Tls& tls = request.tls();
  grpc::SslServerCredentialsOptions options(
      tls.client_verify() ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                          : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_root_certs = tls.custom_ca();
  options.pem_key_cert_pairs.push_back({tls.server_key(), tls.server_cert()});
  return grpc::SslServerCredentials(options);
}

void add_argument(const hotrow::ListenRequest::ChannelArgument& argument,
                  grpc::ServerBuilder* builder) {
  const char* const end = argument.value().data() + argument.value().size();
  int number = 0;
  const auto [parsed, error] = std::from_chars(argument.value().data(), end, number);
  if (error == std::errc() && parsed == end) {
    builder->AddChannelArgument(argument.key(), number);
  } else {
    builder->AddChannelArgument(argument.key(), argument.value());
  }
}

}  // namespace

void Listening::prepare(grpc::ServerBuilder* builder) {
  if (request_.port() > 0) {
    builder->AddListeningPort("0.0.0.0:" + std::to_string(request_.port()),
                              credentials_of(request_), &port_);
  }
  for (int i = 0; i < request_.socket_paths_size(); ++i) {
    // The file system's permissions decide which processes may open a socket.
    builder->AddListeningPort("unix:" + request_.socket_paths(i), grpc::InsecureServerCredentials(),
                              &sockets_[i]);
  }
  // Otherwise a second server would share the port and take half of the requests.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  for (const auto& argument : request_.channel_arguments()) add_argument(argument, builder);
  listed_ = prepare_reflection(request_.reflection(), builder);
  // gRPC keeps this for the whole process, and reads it when a server starts.
  grpc::EnableDefaultHealthCheckService(request_.health());
}

void Listening::check(grpc::Server* server) const {
  if (request_.port() > 0 && port_ == 0) {
    throw Refused(grpc::StatusCode::UNAVAILABLE,
                  "port " + std::to_string(request_.port()) + " cannot be listened on");
  }
  for (int i = 0; i < request_.socket_paths_size(); ++i) {
    if (sockets_[i] == 0) {
      throw Refused(grpc::StatusCode::UNAVAILABLE,
                    "socket " + request_.socket_paths(i) + " cannot be listened on");
    }
  }
  if (server == nullptr) throw Refused(grpc::StatusCode::UNAVAILABLE, "gRPC does not start");
  if (auto* const health = server->GetHealthCheckService()) {
    // The short names are TF Serving's, the others the usual ones. "" is gRPC's.
    for (const char* service :
         {"ModelService", "PredictionService", "tensorflow.serving.ModelService",
          "tensorflow.serving.PredictionService"}) {
      health->SetServingStatus(service, true);
    }
  }
}

}  // namespace hotrow_server
