// A table's slots on a GPU, and the transfer of its rows between them and the host tier.
//
// Rows travel through pinned memory, in chunks of at most staging_bytes, two each way. Copies run
// on the tier's own streams, beside the caller's. Rows on their way out reach the host tier when a
// caller needs it up to date (finish), or when their chunk is reused.
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
#include "core/base/threads.h"
#include "core/gpu/kernels/cache.h"
#include "core/gpu/kernels/lines.h"
#include "core/gpu/kernels/runtime.h"
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
  uint64_t* update_counts() const { return update_counts_; }       // (2) on the device
  size_t stride() const { return cache_.stride; }
  // hold: the stream's later work waits for all earlier users of the slots; without the lock, too.
  // begin: as hold, in the lock; fails with DataLoss once rows were lost. end: later users wait for
  // the stream; it never fails.
  void hold(DeviceStream stream) const { last_use()->hold(stream); }
  void begin(DeviceStream stream) {
    refuse_if_lost();
    hold(stream);
  }
  void end(DeviceStream stream) noexcept {
    own_use_->record_or_wait(stream);
    end(own_use_);
  }
  // As end, of a call whose tables share one event: it was recorded after all their work.
  void end(const std::shared_ptr<DeviceEvent>& recorded) noexcept {
    const std::lock_guard lock(use_mutex_);
    last_use_ = recorded;
    ++uses_;
  }
  // The end of the last use of the slots; without the lock, too.
  std::shared_ptr<const DeviceEvent> last_use() const {
    const std::lock_guard lock(use_mutex_);
    return last_use_;
  }
  // Fails with DataLoss once rows were lost.
  void refuse_if_lost() const;
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
  // How often the slots were used; without the lock, too.
  uint64_t uses() const { return uses_; }
  // Rows that are copied together, either way.
  size_t chunk_rows() const;
  // Allocates the staging memory for `rows` rows; finishes the rows on their way out.
  void reserve(size_t rows);
  // The same only for rows that go out; finishes them only if there must be more memory.
  void reserve_out(size_t rows, const Executor& executor);

  // Rows come in, first step: takes their lines in the host tier, (count), null: none. The lines
  // must not change until end_bring_in; some of them are copied at once. Voids an earlier call that
  // end_bring_in did not follow.
  void begin_bring_in(std::vector<const std::byte*> lines, const Executor& executor);
  // Second step: scatters them on the stream to `targets`, (count) on the device.
  void end_bring_in(std::byte* const* targets, const Executor& executor, DeviceStream stream);

  // Rows go out: they are read on the stream, whose later work may overwrite them. places: (count).
  void send_back(const DeviceLines& rows, const uint32_t* places, size_t count,
                 const Executor& executor, DeviceStream stream);
  void finish(const Executor& executor);
  // Rows that were brought up to date in the host tier since the last call.
  size_t take_written_back() { return std::exchange(written_back_, 0); }

  // Memory and passes of the layer whose first table this is.
  std::unique_ptr<DeviceWorkspace> workspace;
  // Its keys before it has the lock.
  DeviceKeysPool keys_pool;
  // The same for what is dispatched to other ranks; null without ranks.
  std::unique_ptr<DeviceRankWork> rank_work;

 private:
  // A staging buffer for rows in one direction.
  struct Chunk {
    PinnedBlock pinned;
    DeviceBlock device;
    DeviceEvent filled;  // inwards: scattered, the chunk is free; outwards: in pinned memory
    DeviceEvent moved;   // copied from the other side
    size_t rows = 0;
    std::vector<uint32_t> places;  // outwards

    // bytes: of all its rows; most: of any.
    void reserve(size_t bytes, size_t most) {
      pinned.reserve(bytes, most);
      device.reserve(bytes, most);
    }
  };
  // As end; it fails if there is no record.
  void end_recorded(DeviceStream stream) {
    own_use_->record(stream);
    end(own_use_);
  }
  size_t staging_bytes(size_t rows) const { return std::min(rows, chunk_rows()) * stride(); }
  Executor settlers();
  // Writes the dirty rows among slots [first, first + count) back, but for those in chunks.
  void settle_slots(size_t first, size_t count, const Executor& executor);
  void stage(const Executor& executor);
  void scatter(std::byte* const* targets, DeviceStream stream);
  void finish(Chunk& chunk, const Executor& executor);

  Table* table_;
  int device_ = 0;
  size_t row_bytes_;  // header and line
  DeviceBlock memory_, constants_, scratch_;
  PinnedBlock pinned_;
  DeviceCache cache_;
  DeviceCache* cache_on_device_ = nullptr;
  std::byte* default_line_ = nullptr;
  float* corrections_ = nullptr;
  uint64_t* update_counts_ = nullptr;
  std::unique_ptr<Threads> threads_;  // of settlers; null before the first
  OwnStream in_stream_, out_stream_;
  DeviceEvent ready_;
  const std::shared_ptr<DeviceEvent> own_use_ = std::make_shared<DeviceEvent>();
  std::shared_ptr<DeviceEvent> last_use_ = own_use_;
  mutable std::mutex use_mutex_;  // of last_use_
  std::atomic<uint64_t> uses_{0};
  char lost_[256] = "";  // why rows were lost; "": none were

  Chunk in_[2], out_[2];
  size_t next_out_ = 0;
  // Rows that come in: staged [0, staged_), of which [0, scattered_) were scattered.
  std::vector<const std::byte*> incoming_;
  size_t staged_ = 0, scattered_ = 0;
  size_t next_stage_ = 0, next_scatter_ = 0;  // numbers of chunks
  size_t written_back_ = 0;

  std::unique_ptr<DevicePrefetch> ahead_;  // the last: its thread uses all above
};

// The GPU tier of a table; null when it has none.
GpuTier* gpu_tier_of(const Table& table);

// The caches of tiers, (T) on the device.
const DeviceCache* describe_caches(const std::vector<GpuTier*>& tiers, DeviceDescribed* to);

// As GpuTier::hold, of several tiers: once for those that were last used together.
void hold_all(const std::vector<GpuTier*>& tiers, DeviceStream stream);

// How often the slots of tiers were used.
inline uint64_t uses_of(const std::vector<GpuTier*>& tiers) {
  uint64_t total = 0;
  for (const GpuTier* tier : tiers) total += tier->uses();
  return total;
}

// Returns lock(), the lock of the tiers' tables, once the device has done what others do with the
// slots. So it is held only for what the caller does. stream, idle: for the wait. recorded: idle is
// on the stream already, after hold_all, when the slots had been used so often.
template <typename Lock>
auto lock_when_idle(const std::vector<GpuTier*>& tiers, DeviceStream stream, DeviceEvent* idle,
                    Lock&& lock, std::optional<uint64_t> recorded = {}) {
  // How often the wait starts again because others used the slots meanwhile.
  constexpr int kMostWaits = 4;
  for (int waits = 0;; ++waits) {
    const uint64_t used = recorded.value_or(uses_of(tiers));
    if (!std::exchange(recorded, {}).has_value()) {
      hold_all(tiers, stream);
      idle->record(stream);
    }
    idle->wait();
    auto held = lock();
    if (uses_of(tiers) == used || waits == kMostWaits) return held;
  }
}

}  // namespace hotrow
