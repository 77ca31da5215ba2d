#include "service/reflection.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/support/method_handler.h>

#include <string>

namespace hotrow_server {
namespace {

// Each reflection stream has a thread.
constexpr int kMostThreads = 64;

class Plugins final : public grpc::ServerBuilderOption {
 public:
  explicit Plugins(bool reflection) : reflection_(reflection) {}
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    // Linked code has registered the plugin for every server, unless the linker dropped it.
    plugins->clear();
    if (reflection_) {
      plugins->push_back(std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>());
    }
  }

 private:
  bool reflection_;
};

// Reflection lists the services that are registered, and ours are answered without registration.
// This placeholder's only method is unimplemented, as it would be without the placeholder.
class Listed final : public grpc::Service {
 public:
  explicit Listed(const std::string& service) : path_("/" + service + "/-") {
    AddMethod(new grpc::internal::RpcServiceMethod(path_.c_str(),
                                                   grpc::internal::RpcMethod::NORMAL_RPC,
                                                   new grpc::internal::UnknownMethodHandler("")));
  }

 private:
  const std::string path_;
};

}  // namespace

ListedServices prepare_reflection(bool on, grpc::ServerBuilder* builder) {
  builder->SetOption(std::make_unique<Plugins>(on));
  ListedServices services;
  if (!on) return services;
  grpc::ResourceQuota quota("reflection");
  quota.SetMaxThreads(kMostThreads);
  builder->SetResourceQuota(quota);
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  for (const char* name :
       {"tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"}) {
    services.push_back(std::make_unique<Listed>(name));
    builder->RegisterService(services.back().get());
  }
  return services;
}

}  // namespace hotrow_server
