// The requests of the control process: load and unload versions, change routes, open ports.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "base/memory_budget.h"
#include "control/layer_merging.h"
#include "hotrow/protos/control.pb.h"
#include "request_log/record_writer.h"
#include "service/routes.h"
#include "service/statuses.h"

namespace hotrow_server {

// The servers on the public ports and their dependencies.
class PublicServer;
class RestPort;

class ControlService {
 public:
  // ops: the library of our ops.
  explicit ControlService(std::string ops);
  ~ControlService();

  // Safe from several threads.
  hotrow::Reply answer(const hotrow::Request& request);

  // Called after the drain, when its caller has been answered.
  void end();
  void wait_until_ended();

 private:
  // Fail with Refused.
  void load(const hotrow::LoadRequest& request);
  void unload(const hotrow::UnloadRequest& request);
  void set_routes(const hotrow::Routes& routes);
  void set_batching(const hotrow::SetBatching& batching);
  void set_topology(const hotrow::SetTopology& request);
  void show(const hotrow::Show& request);
  void wait_for_rest(const hotrow::Show& request);
  void set_stale(const hotrow::SetStale& request);
  hotrow::ListenReply listen(const hotrow::ListenRequest& request);
  void drain(const hotrow::DrainRequest& request);
  hotrow::DescribeReply describe();
  void add_row_stats(hotrow::StatsReply* reply);
  void add_tensorflow_stats(hotrow::StatsReply* reply);

  // The caller holds the lock. Fails with NOT_FOUND.
  std::shared_ptr<Servable>& loaded(uint64_t servable);
  void refuse_routed(uint64_t servable);

  std::string ops_;
  BatchThreads batch_threads_;
  RecordWriter record_writer_;
  CurrentRoutes routes_;
  CurrentStatuses statuses_;
  std::mutex mutex_;
  std::mutex showing_;
  std::condition_variable changed_;
  Routes::Servables servables_;
  std::unique_ptr<MemoryBudget> budget_;
  std::unique_ptr<RestPort> rest_;  // null: none
  std::unique_ptr<PublicServer> server_;
  LayerMerging merging_;
  bool drained_ = false;
  bool ended_ = false;
};

}  // namespace hotrow_server
