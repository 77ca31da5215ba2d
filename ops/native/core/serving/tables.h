// The tables of a version as its lookups use them: a reader of its generation, the cache of hot
// rows in front of it, and what was counted.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/redis/reader.h"
#include "core/serving/cut_layer.h"
#include "core/serving/device_rows.h"
#include "core/serving/hot_rows.h"
#include "core/serving/lookup.h"
#include "core/store/row_reader.h"

namespace hotrow {

// Where rows are and how they are read.
struct ServingOptions {
  std::string store;  // URL; "" uses the manifest's own
  // For Redis: the generation's control record, the nodes, and the credentials. Empty: the store is
  // embedded.
  std::string generation;
  std::string topology;
  RedisOptions redis;
  std::chrono::milliseconds timeout{0};  // for all reads of a request; 0: none
  OnStoreFailure on_store_failure = OnStoreFailure::kFail;
  HotRowsOptions cache;      // neither rows nor bytes: no cache
  DeviceRowsOptions on_gpu;  // gpu below 0: none. It needs a cache in RAM
  // Rows that warm-up of the cache reads from the store a second; 0: any number.
  uint64_t warm_up_rows_per_second = 0;
  RowVersion shown = 0;        // of the first overlay; 0: rows as exported
  RowVersion fence = 0;        // of the first overlay
  bool takes_no_cuts = false;  // as in ServingLookupOptions
};

class ServingTables {
 public:
  // Fails when the store lacks the generation, a table or some rows, or has tables of other widths
  // than the manifest.
  ServingTables(const std::string& manifest_path, const ServingOptions& options);

  // Unique in this process.
  uint64_t id() const { return id_; }
  const std::vector<StoredTable>& tables() const { return reader_->tables(); }
  // The first overlay: it has no layers, but rows newer than ServingOptions::shown fail.
  std::shared_ptr<const Overlay> first_overlay() const;
  // The index of a table in `tables`. Fails with NotFound.
  size_t number_of(const std::string& name) const;
  // As ServingLookup::begin; with a stream, as begin_on_device, for tables on its GPU. Rows from
  // memory are counted only while they may be stale.
  std::unique_ptr<UnfinishedLookup> begin(const ServingFeature* features, size_t count,
                                          float* const* outputs, const Executor& executor,
                                          SampleCounts counts, const Overlay& overlay,
                                          void* stream = nullptr) const;
  // The GPU that has hot rows, or -1.
  int gpu() const { return on_gpu_ == nullptr ? -1 : options_.on_gpu.gpu; }
  // How long a read of the store takes, about; 0: the rows are in this machine's memory or files.
  std::chrono::nanoseconds typical_read() const {
    return redis_ == nullptr ? std::chrono::nanoseconds(0) : redis_->typical_read();
  }
  bool is_remote() const { return redis_ != nullptr; }
  // For all reads of a request; 0: no limit.
  std::chrono::milliseconds timeout() const { return options_.timeout; }

  // The rows of a cut; shared while any caller holds them. Fails as CutLayer does.
  std::shared_ptr<const CutLayer> layer(const std::string& path, RowVersion version) const;
  // The layers of these cuts, the newest first; merged ones where there are any. Cuts that are not
  // listed and older than all that are may be in the last layer, too: the store has their rows.
  // Fails as `layer`.
  std::vector<std::shared_ptr<const CutLayer>> layers(const std::vector<LayerFile>& files) const;
  // One layer in place of these, the newest first; shared while any caller holds it.
  std::shared_ptr<const CutLayer> merge(
      const std::vector<std::shared_ptr<const CutLayer>>& layers) const;
  // Updates the cache with the layer's rows, which the store has now.
  void folded(const CutLayer& layer) const;
  // Drops cached rows, which may be older than the store's now.
  void forget_cached() const;
  // Newer rows are not cached: some versions that share these tables must not read them. 0: all
  // rows may be cached.
  void cache_up_to(RowVersion newest) const;
  // Rows of shards whose watermark is lower fail; only in Redis. 0: they are not checked.
  void set_fence(RowVersion oldest) const;
  // Checks all shards again, as if their nodes had been started again.
  void check_fence_again() const;
  // Sets whether updates of the store cannot be followed now, so that rows in memory may be old.
  void set_stale(bool stale) const { stale_.store(stale, std::memory_order_relaxed); }

  // For a store in Redis; fails with FailedPrecondition for another store.
  void set_topology(const std::string& topology) const;

  // Calls visit(name, table or node, value, whether it may decrease) for each metric.
  using Visit = std::function<void(const char*, const std::string&, double, bool)>;
  void visit_counts(const Visit& visit) const;
  // Calls visit for each histogram: its name, B bounds, B + 1 counts, and the sum of all values.
  using VisitHistogram =
      std::function<void(const char*, const double*, size_t, const uint64_t*, double)>;
  void visit_histograms(const VisitHistogram& visit) const;

 private:
  // The merged layers that callers hold. The caller holds the lock.
  std::vector<std::shared_ptr<const CutLayer>> merged() const;
  void visit_redis(const Visit& visit) const;
  void visit_gpu(const Visit& visit) const;
  // Fills the cache with the rows that training used most, as many as fit.
  void warm_up();

  const uint64_t id_;
  std::string manifest_path_;
  ServingOptions options_;
  std::shared_ptr<const RowReader> reader_;
  const RedisReader* redis_ = nullptr;  // the reader, if it is one
  std::shared_ptr<HotRows> cache_;
  std::unique_ptr<ServingLookup> lookup_;
  std::unique_ptr<DeviceRows> on_gpu_;  // null: none
  std::unordered_map<std::string, size_t> numbers_;
  size_t warmed_rows_ = 0;
  mutable std::atomic<bool> stale_{false};
  mutable std::mutex layers_mutex_;
  mutable std::map<std::string, std::weak_ptr<const CutLayer>> layers_;  // by path
  mutable std::vector<std::weak_ptr<const CutLayer>> merged_;
};

}  // namespace hotrow
