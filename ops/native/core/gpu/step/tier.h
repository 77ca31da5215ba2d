// A table's slots on a GPU, and the transfer of its rows between them and the host tier.
//
// Kernels read and write the rows of the host tier in place (gpu/kernels/lines.h), on the caller's
// stream; rows outside the slots go back on another one (gpu/step/transit.h). The host keeps its
// index and what snapshots need: it takes a snapshot's copy of a row before a kernel that writes
// the row. Who reads rows of the host tier waits until no kernel writes them (wait_for_host_rows);
// a lookup needs only their keys, which no kernel writes.
//
// A slot has its tag before its row, and a row leaves its slot before it is in the host tier. So a
// failure in between loses rows: the tier then refuses all calls, until the table is cleared or the
// host tier has all rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "core/base/executor.h"
#include "core/gpu/kernels/cache.h"
#include "core/gpu/kernels/runtime.h"
#include "core/gpu/step/host_rows.h"
#include "core/gpu/step/keys_ahead.h"
#include "core/gpu/step/prefetch.h"
#include "core/table/device_tier.h"
#include "core/table/row_cache.h"

namespace hotrow {

class DeviceWorkspace;
struct DeviceRankWork;

class GpuTier final : public DeviceTier {
 public:
  // Construct it with the GPU of its options current.
  explicit GpuTier(Table& table);
  ~GpuTier() override;

  // --- for the table ----------------------------------------------------------------------------
  size_t slots() const override { return cache_.slots(); }
  size_t bytes() const override;
  size_t settle() override;
  void settle_ahead() override;
  void wait_for_host_rows() override;
  void clear() override;
  void read_headers(const int64_t* keys, size_t count, RowHeader* headers) override;
  void drop(const int64_t* keys, size_t count) override;
  UpdateTotals take_updates() override;
  void prefetch(const int64_t* keys, size_t count) override;
  void wait_for_prefetch() override;
  void let_go_of_windows() override;
  void expect(const int64_t* keys, const uint32_t* uses, size_t count) override;

  // --- for the calls of layers (gpu/step/layer.h) and prefetching, in the table's lock, alone ----
  int device() const { return device_; }
  const DeviceCache& cache() const { return cache_; }
  const DeviceCache* cache_on_device() const { return cache_on_device_; }
  const std::byte* default_line() const { return default_line_; }  // on the device
  const float* corrections() const { return corrections_; }        // on the device
  uint64_t* update_counts() const { return counts_; }              // (2) on the device
  HostRows& host_rows() { return *host_rows_; }
  // Rows are on their way to the host tier on another stream until the event.
  void note_host_rows_in_transit(std::shared_ptr<DeviceEvent> gone) { gone_ = std::move(gone); }
  bool in_transit_by(const std::shared_ptr<DeviceEvent>& gone) const { return gone_ == gone; }
  // Waits for them.
  void wait_for_transit() {
    if (gone_ != nullptr) gone_->wait();
  }
  // As wait_for_host_rows, before the host changes rows.
  void end_transit() {
    wait_for_host_rows();
    gone_ = nullptr;
  }
  size_t stride() const { return cache_.stride; }
  // hold: the stream's later work waits for all earlier users of the slots; without the lock, too.
  // begin: as hold, in the lock; fails with DataLoss once rows were lost. end: later users wait for
  // the stream; it never fails.
  void hold(DeviceStream stream) const { last_use()->hold(stream); }
  void begin(DeviceStream stream) {
    refuse_if_lost();
    hold(stream);
  }
  void refuse_if_lost() const;
  void end(DeviceStream stream) noexcept {
    own_use_->record_or_wait(stream);
    note_use(own_use_);
    ++uses_;
  }
  // As end, of a call whose tables share one event: it was recorded after all their work.
  void end(const std::shared_ptr<DeviceEvent>& use) noexcept {
    note_use(use);
    ++uses_;
  }
  // The end of the last use of the slots; without the lock, too.
  std::shared_ptr<DeviceEvent> last_use() const {
    const std::lock_guard lock(use_mutex_);
    return use_;
  }
  // Runs change(), which leaves slots that are wrong if it fails. Then the rows are lost.
  template <typename Change>
  void change_slots(Change&& change) {
    try {
      change();
    } catch (const std::exception& error) {
      lose_rows(error.what());
      throw;
    }
  }
  void lose_rows(const char* why) noexcept;
  // As the function of that name; also waits until no step waits for the lock.
  std::unique_lock<std::shared_mutex> lock_when_idle(DeviceStream stream, DeviceEvent* idle);
  std::shared_ptr<void> copy_ahead(const std::vector<Feature>& features) override;
  // How often the slots were used; without the lock, too.
  uint64_t uses() const { return uses_; }
  // Rows of piece_bytes.
  size_t piece_rows() const;
  // Call them before a kernel writes rows back, if the table is watched: they take the snapshot's
  // copies of rows that will change. places: (count), kNoSlot: none. rows: (count) their headers,
  // which show whether they do; none of these rows is in transit.
  void before_write_back(const RowHeader* rows, const uint32_t* places, size_t count,
                         const Executor& executor);
  // Of rows that change in any case. A row in transit has its copy.
  void before_write(const int64_t* keys, const uint32_t* places, size_t count,
                    const Executor& executor);

  // Memory and passes of the layer whose first table this is.
  std::unique_ptr<DeviceWorkspace> workspace;
  // Its keys before it has the lock.
  DeviceKeysPool keys_pool;
  // The same for what is dispatched to other ranks; null without ranks.
  std::unique_ptr<DeviceRankWork> rank_work;

 private:
  friend void hold_host_rows(const std::vector<GpuTier*>& tiers, DeviceStream stream);
  void note_use(const std::shared_ptr<DeviceEvent>& use) noexcept {
    std::lock_guard lock(use_mutex_);
    use_ = use;
  }
  // As end, and fails.
  void record_use(DeviceStream stream) {
    own_use_->record(stream);
    note_use(own_use_);
  }
  // visit(partition, i) for each row, i < count, with the partition's lock if a snapshot is open.
  template <typename KeyOf, typename Visit>
  void visit_host_rows(KeyOf&& key_of, const uint32_t* places, size_t count,
                       const Executor& executor, Visit&& visit);
  // Writes the dirty rows among slots [first, first + count) back.
  void settle_slots(size_t first, size_t count);
  // Waits for the rows on their way, and returns how many were out of date.
  size_t take_written_back();

  Table* table_;
  int device_ = 0;
  DeviceBlock memory_, constants_, scratch_;
  PinnedBlock pinned_;
  DeviceCache cache_;
  DeviceCache* cache_on_device_ = nullptr;
  std::byte* default_line_ = nullptr;
  float* corrections_ = nullptr;
  uint64_t* counts_ = nullptr;  // (3): updates, those left out, rows written back
  std::optional<HostRows> host_rows_;
  OwnStream own_stream_;
  DeviceEvent ready_;
  const std::shared_ptr<DeviceEvent> own_use_ = std::make_shared<DeviceEvent>();
  mutable std::mutex use_mutex_;  // of use_
  std::shared_ptr<DeviceEvent> use_ = own_use_;
  std::shared_ptr<DeviceEvent> gone_;  // null: no rows are in transit
  std::atomic<uint64_t> uses_{0};
  char lost_[256] = "";  // why rows were lost; "": none were

  std::unique_ptr<DevicePrefetch> ahead_;  // the last: its thread uses all above
};

// While it lives, work on the stream uses the slots: it waits for earlier users, and later ones for
// it.
class SlotUse {
 public:
  SlotUse(GpuTier& tier, DeviceStream stream) : tier_(&tier), stream_(stream) {
    tier.begin(stream);
  }
  ~SlotUse() { tier_->end(stream_); }
  SlotUse(const SlotUse&) = delete;

 private:
  GpuTier* tier_;
  DeviceStream stream_;
};

// As GpuTier::hold, of all tiers.
void hold_slots(const std::vector<GpuTier*>& tiers, DeviceStream stream);
// The stream's later work, which uses rows of the tiers' host tiers, comes after rows in transit.
// So does the work of later users of the slots, when this user ends.
void hold_host_rows(const std::vector<GpuTier*>& tiers, DeviceStream stream);

// The GPU tier of a table; null when it has none.
GpuTier* gpu_tier_of(const Table& table);

// The caches of tiers, (T) on the device.
const DeviceCache* describe_caches(const std::vector<GpuTier*>& tiers, DeviceDescribed* to);

// How often the slots of tiers were used.
inline uint64_t uses_of(const std::vector<GpuTier*>& tiers) {
  uint64_t total = 0;
  for (const GpuTier* tier : tiers) total += tier->uses();
  return total;
}

// Returns lock(), the lock of the tiers' tables, once the device has done what others do with the
// slots. So it is held only for what the caller does. stream, idle: for the wait. recorded: idle is
// on the stream already, after hold_slots, when the slots had been used so often.
template <typename Lock>
auto lock_when_idle(const std::vector<GpuTier*>& tiers, DeviceStream stream, DeviceEvent* idle,
                    Lock&& lock, std::optional<uint64_t> recorded = {}) {
  // How often the wait starts again because others used the slots meanwhile.
  constexpr int kMostWaits = 4;
  for (int waits = 0;; ++waits) {
    const uint64_t used = recorded.value_or(uses_of(tiers));
    if (!std::exchange(recorded, {}).has_value()) {
      hold_slots(tiers, stream);
      idle->record(stream);
    }
    idle->wait();
    auto held = lock();
    if (uses_of(tiers) == used || waits == kMostWaits) return held;
  }
}

}  // namespace hotrow
