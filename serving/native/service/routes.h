// The routes from requests to servables: an immutable table that is swapped as a whole.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "hotrow/protos/control.pb.h"
#include "request_log/request_log.h"
#include "service/servable.h"
#include "tensorflow_serving/apis/model.pb.h"

namespace hotrow_server {

class Routes {
 public:
  using Servables = std::map<uint64_t, std::shared_ptr<Servable>>;

  Routes() = default;
  // logs: of the models whose requests are logged. Fails with NOT_FOUND when a route's servable is
  // not in `servables`.
  Routes(const hotrow::Routes& routes, const Servables& servables, const RequestLogs& logs = {});

  // A route to a version. It holds the servable.
  struct Route {
    std::shared_ptr<const Servable> servable;
    int64_t version = 0;
    std::shared_ptr<const RequestLog> log;  // null: its requests are not logged
  };
  // Fails with INVALID_ARGUMENT for a spec without a name or with an unknown label, NOT_FOUND when
  // no such model or version serves.
  Route find(const tensorflow::serving::ModelSpec& spec) const;

  const hotrow::Routes& proto() const { return proto_; }

 private:
  struct Model {
    std::map<int64_t, std::shared_ptr<const Servable>> versions;
    std::map<std::string, int64_t> labels;
    std::shared_ptr<const RequestLog> log;
  };
  hotrow::Routes proto_;
  std::map<std::string, Model> models_;
};

// The routes of the process: readers take them without a lock of their own.
class CurrentRoutes {
 public:
  std::shared_ptr<const Routes> get() const { return std::atomic_load(&routes_); }
  void set(std::shared_ptr<const Routes> routes) { std::atomic_store(&routes_, std::move(routes)); }

 private:
  std::shared_ptr<const Routes> routes_ = std::make_shared<const Routes>();
};

}  // namespace hotrow_server
