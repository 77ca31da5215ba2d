// Reads the rows of a generation from Redis (docs/formats.md, "Stored rows").
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/redis/read.h"
#include "core/store/row_reader.h"
#include "core/store/stored_generation.h"

namespace hotrow {

class RedisReader : public RowReader {
 public:
  // topology: as parse_redis_topology takes it. Connects to no node. Fails with DataLoss or
  // InvalidArgument.
  RedisReader(StoredGeneration generation, const std::string& topology, RedisOptions options);

  const std::vector<StoredTable>& tables() const override { return generation_.tables; }
  RowVersion exported() const { return generation_.row_version; }
  // Failures: Unavailable (a node cannot be reached, or is too slow), PermissionDenied, DataLoss
  // (the store lost rows, or a page is damaged), ResourceExhausted (too many reads at a time),
  // FailedPrecondition (the node belongs to a cluster, but the topology is not one).
  ReadFailure read(const ReadRequest* requests, size_t count, Deadline deadline) const override;

  // How long a read takes, about, once it has begun; 0: none has ended.
  std::chrono::nanoseconds typical_read() const {
    return std::chrono::nanoseconds(typical_nanos_.load(std::memory_order_relaxed));
  }

  // From now on rows of shards whose watermark is below `oldest` fail: the store went back in time.
  // 0: no row fails. May be called while other threads read.
  void set_fence(RowVersion oldest) const;
  // Reads the watermarks again, also over connections that live.
  void check_marks_again() const { fence_.round.fetch_add(1); }
  // May be called while other threads read.
  void set_topology(const std::string& topology) const;
  // Calls visit(name, count) for each counter of RedisStatistics.
  using Visit = std::function<void(const char*, uint64_t)>;
  void visit_counts(const Visit& visit) const;
  // How long reads took, with their wait for a turn.
  RedisReadTimes read_times() const { return RedisReadTimes(statistics_); }
  const RedisRoutes& routes() const { return routes_; }
  // JSON: these counters by name, "read_times", and "nodes": by address.
  std::string statistics() const;

 private:
  ReadFailure take_turn(Deadline deadline) const;
  void end_turn(std::chrono::nanoseconds taken) const;

  const StoredGeneration generation_;
  const RedisOptions options_;
  const StoreNames names_;
  mutable RedisRoutes routes_;
  mutable RedisStatistics statistics_;
  mutable RedisFence fence_;
  RedisReading shared_;
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  mutable size_t reads_ = 0;    // now
  mutable size_t waiting_ = 0;  // to begin
  mutable std::atomic<int64_t> typical_nanos_{0};
};

}  // namespace hotrow
