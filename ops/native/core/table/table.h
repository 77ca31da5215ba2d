// A training table: its shards, their partitions, the step, and the gradients that wait.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "core/base/dispatch.h"
#include "core/base/status.h"
#include "core/kernels/gradient_passes.h"
#include "core/table/partition.h"
#include "core/table/row_cache.h"
#include "core/table/sharding.h"

namespace hotrow {

class DeviceTier;
class RamTier;
class Snapshot;
class SnapshotBudget;
struct FoundRows;
struct StaleState;

// What a layer on several ranks keeps between its passes; see ranks/session.h.
class LayerSession {
 public:
  virtual ~LayerSession() = default;
};

// Safe from several threads: reads share the lock, everything else takes it exclusively. Inside the
// lock a step may use several threads; each owns the partitions that it works on.
//
// Shard s has the keys with owner_of(key) == s. A shard has kPartitions partitions by the top bits
// of the hashed key. Only the history of keys determines where rows lie.
class Table {
 public:
  static constexpr unsigned kPartitionBits = hotrow::kPartitionBits;
  static constexpr size_t kPartitions = size_t{1} << kPartitionBits;  // of a shard

  // sharding: with ranks this is one rank's part of a table, and `options` describe the part.
  Table(std::string name, const TableOptions& options, int32_t shards, bool hashed,
        Sharding sharding = {});
  ~Table();

  const std::string& name() const { return name_; }
  const TableOptions& options() const { return shape_.options; }
  const RowShape& shape() const { return shape_; }
  size_t width() const { return shape_.options.width; }
  size_t line_bytes() const { return shape_.line_bytes; }
  size_t shard_count() const { return shards_; }
  bool hashed() const { return hashed_; }
  const Sharding& sharding() const { return sharding_; }
  // Whether an update of a row needs values of other ranks: the squares of all its columns.
  bool measures_together() const {
    return sharding_.ranks != nullptr && sharding_.scheme == Scheme::kColumn &&
           (options().optimizer.kind == OptimizerKind::kRowwiseAdagrad ||
            options().optimizer.clip_row_norm > 0.0f);
  }
  size_t size() const;
  size_t bytes() const;
  uint32_t step() const;
  void set_step(uint32_t step);
  // Replicas of other ranks' rows, and the updates counted for other ranks; null without staleness.
  StaleState* stale() const { return stale_.get(); }
  // The value that an unknown key reads, as stored.
  float default_value() const;

  // --- rows outside of steps --------------------------------------------------------------------
  // Copies rows from a cursor on, ordered by shard, partition, place; 0 starts, kEnd is the end.
  static constexpr uint64_t kEnd = ~uint64_t{0};
  size_t export_rows(uint64_t cursor, size_t count, const RowArrays& out, uint64_t* next) const;
  // Writes rows; an existing key's row is replaced. places: (count) or null. Fails while a
  // snapshot is open.
  void import_rows(const int64_t* keys, size_t count, const std::byte* lines,
                   const uint32_t* clocks, const uint32_t* counts, const uint32_t* places);
  size_t remove_rows(const int64_t* keys, size_t count);
  // The multiset hash of rows; it does not depend on their order.
  void digest(bool weights_only, uint64_t digest[2]) const;
  // Drops rows, state and waiting gradients. Fails while a snapshot is open.
  void clear();

  // Takes the keys of the next window of batches; see Prefetch::add. Does nothing without a device
  // tier.
  void prefetch(const int64_t* keys, size_t count);
  // Waits until the rows of all windows are in the device tier.
  void wait_for_prefetch();
  // keys: (count) distinct, counts: how often each appeared in a sample. Fills up to `share` of the
  // device tier with the most frequent keys that have a row; from now on the policy prefers them.
  // Returns how many rows came in. On ranks, only keys that this rank owns count.
  size_t warm_up(const int64_t* keys, const uint32_t* counts, size_t count, double share);

  struct Statistics {
    uint64_t rows, bytes, lookups, admitted, refused, waiting, expired, tombstones;
    uint64_t tombstones_dropped;  // because there were too many; since the table was made
    uint64_t cache_slots;         // 0: there is no device tier
    CacheCounts cache;
    uint64_t disk_bytes;  // of the log's file; 0 when lines are in memory
    uint64_t disk_lines_read, disk_lines_written;
    uint64_t updates;            // of rows by commits, those left out included
    uint64_t nonfinite_updates;  // left out: the row would not have been finite
  };
  Statistics statistics() const;
  // Records expired keys from now on; before, they are not kept.
  void keep_tombstones();
  void tombstones(std::vector<int64_t>* keys, std::vector<uint32_t>* steps) const;
  // Steps after the table's own are not forgotten.
  void forget_tombstones(uint32_t up_to_step);
  // Every key that expired after this step has a tombstone, unless it has a row again.
  uint32_t forgotten_step() const;
  // Removes the rows of keys, with tombstones of the next step. Returns how many there were.
  size_t bury_rows(const int64_t* keys, size_t count);
  // All state besides rows: step, totals, tombstones, sweep, admission filters.
  std::vector<uint8_t> state() const;
  // Fails with DataLoss for damaged data, and with FailedPrecondition for a state of other options;
  // then nothing has changed.
  void set_state(const uint8_t* data, size_t size);
  // Restores the states of the ranks that had the table before, however it was split then: the
  // step, totals, and the tombstones of keys that this rank owns. Occurrences start anew. Fails
  // with DataLoss when a state is damaged; then nothing has changed.
  struct SavedState {
    const uint8_t* data;
    size_t size;
    bool counts;  // whether this rank continues its totals
  };
  void merge_states(const std::vector<SavedState>& saved);

  // --- snapshots --------------------------------------------------------------------------------
  // Rows as they are now; see Snapshot. Fails with FailedPrecondition while a snapshot of its kind
  // is open, and for publishing before begin_publishing. budget: shared with the snapshots of other
  // tables; null: its own.
  std::unique_ptr<Snapshot> open_snapshot(Since since,
                                          std::shared_ptr<SnapshotBudget> budget = nullptr);

  // --- marks for publishing ---------------------------------------------------------------------
  // Before the first call nothing is marked, and it costs nothing.
  // Starts to mark rows that change, and drops earlier marks. Marks the rows whose clock is above
  // `since`, and as removed the keys that expired after it; without `since`, all rows and no keys.
  // Fails with FailedPrecondition while a snapshot for publishing is open, and when tombstones
  // after that step were forgotten; with InvalidArgument for a step after the table's.
  void begin_publishing(std::optional<uint32_t> since);
  // Marks the rows of keys; a key without a row counts as removed. Keys that another rank owns are
  // left out. Fails with FailedPrecondition before begin_publishing.
  void mark_for_publishing(const int64_t* keys, size_t count);
  // Rows and removed keys that are marked, those of an open snapshot left out. Rows that changed in
  // the device tier count once they are written back.
  size_t marked_rows() const;

  // --- for the steps (table/training.h) ----------------------------------------------------------
  std::shared_mutex& mutex() const { return mutex_; }
  size_t partition_number(int64_t key, uint64_t hash) const {
    return partition_number_of(key, hash, static_cast<int32_t>(shards_), hashed_);
  }
  Partition& partition(size_t number) { return partitions_[number]; }
  const Partition& partition(size_t number) const { return partitions_[number]; }
  size_t partition_count() const { return partitions_.size(); }
  const std::byte* default_line() const { return default_line_.data(); }
  void check_keys(const int64_t* keys, size_t count) const;
  DeviceTier& tier() const { return *tier_; }
  // The device tier if it is in RAM, where lookups on the CPU use it; else null.
  RamTier* ram_tier() const { return ram_tier_; }
  bool on_gpu() const {
    return options().cache.rows > 0 && options().cache.device == CacheDevice::kGpu;
  }
  // Brings the host tier up to date; rows stay in the device tier, clean.
  void settle() const;
  // The same, and returns a lock with which the rows of the host tier can be read.
  std::shared_lock<std::shared_mutex> lock_settled() const;
  // For DeviceTier::settle_ahead, in the lock: whether slots may be dirty; and rows of them that
  // were written back, of which `behind` were out of date in the host tier.
  bool unsettled() const { return unsettled_; }
  void note_settled(size_t behind);
  // Takes the lock when no step waits for it.
  std::unique_lock<std::shared_mutex> lock_beside_steps();
  // How many steps wait for the lock.
  std::atomic<int> steps_waiting{0};
  // The line of a key's row for an update; marks it dirty. Null: the key has no row.
  std::byte* line_to_update(int64_t key, uint64_t hash, uint32_t place);
  // Call it after a batch of training or prefetching moved rows in the device tier.
  void note_cached(const CacheCounts& counts);
  // Rows moved between tiers.
  void void_found() {
    ++epoch_;
    ++moves_;
  }
  // Changes whenever a row is removed, replaced or moved: earlier places and lines are then void.
  uint64_t epoch() const { return epoch_; }
  // The same without the changes in which rows only moved between tiers.
  uint64_t host_epoch() const { return epoch_ - moves_; }
  // Returns the settings of the kernels of the next commit. learning_rate: NaN uses the options'
  // rate. Waits for a snapshot's reader, and fails with ResourceExhausted after 2^32 - 3 commits.
  UpdateStep prepare_update(float learning_rate, float scale);
  // Begins the commit that was prepared.
  void begin_update() { ++step_; }
  // The settings that all commits share.
  UpdateStep step_settings() const;
  // Finds rows that may expire at this step, in partitions `first`, `first + stride` and so on,
  // before the commit's updates; then `sweep` removes those that expired after them. `first` is
  // below kPartitions. In RAM, several threads may do so in different partitions, and only
  // `prepare_sweep` fails.
  void prepare_sweep(size_t first, size_t stride, uint32_t step);
  void sweep(size_t first, size_t stride);
  void end_sweep();
  // For TableChanges; see Partition.
  void begin_changes();
  void keep_changes() noexcept;
  void undo_changes() noexcept;
  size_t memory_in_lock() const { return memory_.bytes(); }
  // Of the rows and their index.
  SlabMemory& row_memory() { return memory_; }
  // Whether snapshots need to know which rows are written; see Partition::before_write.
  bool watching() const { return partitions_[0].watching(); }
  bool snapshot_open() const { return snapshots_[0] != nullptr || snapshots_[1] != nullptr; }
  // When the disk of the rows is full, ends an open snapshot that keeps old versions of rows there.
  // False: nothing ended. The caller does not hold the table's lock.
  bool give_up_snapshot_for_disk();
  bool give_up_snapshot_for_disk_in_lock();  // the caller holds it, alone
  bool has_disk() const { return shape_.log != nullptr; }
  // Whether rows found no room there since a snapshot began or ended.
  bool lacks_disk() const { return has_disk() && shape_.log->lacks_room(); }
  // While the copies of an open snapshot take too much memory, waits for the reader, or gives the
  // snapshot up if it is for publishing.
  void wait_for_snapshot();
  uint32_t step_in_lock() const { return step_; }
  void add_lookups(uint64_t count) { lookups_.fetch_add(count, std::memory_order_relaxed); }
  void add_updates(uint64_t count, uint64_t nonfinite) {
    updates_.fetch_add(count, std::memory_order_relaxed);
    if (nonfinite > 0) nonfinite_updates_.fetch_add(nonfinite, std::memory_order_relaxed);
  }

  GradientPasses passes;
  // What the last forward passes found; in the layer's first table.
  static constexpr size_t kFoundBatches = 4;
  std::array<std::unique_ptr<FoundRows>, kFoundBatches> found_rows;
  size_t next_found = 0;
  // The session of the layer on several ranks whose first table this is; null before its first
  // step.
  std::unique_ptr<LayerSession> session;
  std::once_flag session_made;

 private:
  friend class Snapshot;
  void check_sharding() const;
  // The partition's lock while a snapshot is open, else none.
  std::unique_lock<std::mutex> lock_beside_snapshot(const Partition& partition) const;
  size_t warm_up_own(const int64_t* keys, const uint32_t* counts, size_t count, double share);
  // Call it after anything but training replaced or removed rows; on ranks, on all of them.
  void forget_old_rows();
  void check_no_snapshot(const char* what) const;
  void check_publishing() const;
  void mark_changes(Partition& partition, std::optional<uint32_t> since);
  void settle_in_lock();
  // Adds the updates that were counted on a GPU to the totals; in the lock: alone.
  void take_updates() const;
  void take_updates_in_lock();
  // The same, and empties the device tier.
  void empty_cache();
  // The most places of a partition if it had all of the machine's memory.
  uint64_t most_places() const;
  size_t remove_in_lock(const int64_t* keys, size_t count, bool bury);
  uint32_t forgotten_in_lock() const;
  // Drops the older half of the tombstones if there are too many, and those of no use.
  void bound_tombstones();
  std::vector<uint8_t> state_in_lock() const;
  void make_partitions();
  void make_tier();

  std::string name_;
  RowShape shape_;
  size_t shards_;
  bool hashed_;
  Sharding sharding_;
  std::unique_ptr<StaleState> stale_;
  std::vector<std::byte> default_line_;  // header and line
  mutable std::shared_mutex mutex_;
  SlabMemory memory_;
  std::deque<Partition> partitions_;  // shards x kPartitions
  uint32_t step_ = 0;
  uint64_t epoch_ = 0;
  uint64_t moves_ = 0;
  CacheCounts cache_counts_;
  bool unsettled_ = false;  // there may be dirty rows in the device tier
  std::atomic<uint64_t> lookups_{0};
  std::atomic<uint64_t> updates_{0}, nonfinite_updates_{0};
  uint64_t tombstones_dropped_ = 0;
  std::vector<float> corrections_;                     // Adam
  std::array<Snapshot*, kSnapshotKinds> snapshots_{};  // the open ones, by kind
  // Rows that may expire, of the partitions of a sweep.
  struct Sweep {
    std::vector<std::pair<Partition*, uint32_t>> rows;  // with their places
    std::vector<int64_t> keys, in_slots;
    std::vector<RowHeader> newest;
  };
  std::array<Sweep, kPartitions> sweeps_;  // by the first partition
  RamTier* ram_tier_ = nullptr;
  std::unique_ptr<DeviceTier> tier_;  // the last: its threads use all above
};

}  // namespace hotrow
