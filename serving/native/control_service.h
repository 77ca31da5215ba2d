// What the control process asks for: versions come and go, routes change, ports open.
#pragma once

#include <grpcpp/server.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "hotrow/protos/control.grpc.pb.h"
#include "routes.h"

namespace hotrow_server {

// The server on the public ports, with what it needs.
class PublicServer;

class ControlService final : public hotrow::Control::Service {
 public:
  // ops: the library of our ops.
  explicit ControlService(std::string ops);
  ~ControlService() override;

  grpc::Status Load(grpc::ServerContext* context, const hotrow::LoadRequest* request,
                    hotrow::LoadReply* reply) override;
  grpc::Status Unload(grpc::ServerContext* context, const hotrow::UnloadRequest* request,
                      hotrow::UnloadReply* reply) override;
  grpc::Status SetRoutes(grpc::ServerContext* context, const hotrow::Routes* request,
                         hotrow::SetRoutesReply* reply) override;
  grpc::Status Listen(grpc::ServerContext* context, const hotrow::ListenRequest* request,
                      hotrow::ListenReply* reply) override;
  grpc::Status Drain(grpc::ServerContext* context, const hotrow::DrainRequest* request,
                     hotrow::DrainReply* reply) override;
  grpc::Status Describe(grpc::ServerContext* context, const hotrow::DescribeRequest* request,
                        hotrow::DescribeReply* reply) override;
  grpc::Status Stats(grpc::ServerContext* context, const hotrow::StatsRequest* request,
                     hotrow::StatsReply* reply) override;

  // Until Drain has been answered for.
  void wait_until_drained();

 private:
  std::string ops_;
  CurrentRoutes routes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Routes::Servables servables_;
  std::unique_ptr<PublicServer> server_;
  bool drained_ = false;
};

}  // namespace hotrow_server
