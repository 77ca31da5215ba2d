// The hot rows of a version on a GPU: DeviceRows over gpu/serving/cache.h.
//
// A lookup costs one copy to the GPU, one launch and one wait. It copies keys, splits and weights
// through pinned memory; the kernel marks the outputs that it leaves to the host in pinned memory.
// Rows come in on a stream of low priority, by a thread that collects the keys that lookups missed.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "core/gpu/kernels/runtime.h"
#include "core/gpu/serving/lookup.h"
#include "core/serving/device_rows.h"

namespace hotrow {

class GpuRows final : public DeviceRows {
 public:
  // Construct it with the GPU of its options current.
  GpuRows(std::shared_ptr<HotRows> rows, const DeviceRowsOptions& options);
  ~GpuRows() override;

  std::unique_ptr<DeviceRows::Call> begin(void* stream) override;
  uint64_t least_keys() const override { return least_keys_.load(std::memory_order_relaxed); }
  void measure(size_t table, const int64_t* keys, size_t count) override;
  std::shared_ptr<const DeviceLayer> keys_of(const CutLayer& layer) override;
  void want(size_t table, const int64_t* keys, size_t count) override;
  void fill(size_t table, const int64_t* keys, size_t count) override;
  void update(size_t table, const int64_t* keys, size_t count, const std::byte* rows,
              const RowVersion* versions) override;
  void invalidate_shard(size_t shard, size_t shards) override;
  void clear() override { invalidate_shard(0, 1); }

  std::string why_off() const override;
  size_t slots() const override;
  size_t bytes() const override;
  void note(size_t table, uint64_t hits, uint64_t misses) override;
  DeviceLookupCounts lookups(size_t table) const override;
  DeviceRowCounts counts() const override;

 private:
  class Call;  // gpu_call.cu
  // Memory of calls, one after the other.
  struct CallMemory {
    PinnedBlock sent, left, rows, floats;
    DeviceBlock there;
    DeviceEvent used;  // by the device
  };
  // The cache of the tables whose rows have one size.
  struct Pool {
    size_t row_bytes;
    std::vector<uint64_t> salts;  // by number
    double stored = 0;            // rows of its tables
    bool bounded = true;          // all of them state their numbers of rows
    DeviceBlock memory;
    ServingCache cache;

    double set_bytes() const;
  };
  struct Place {
    Pool* pool;
    ServedTable table;
  };
  struct alignas(64) Lookups {
    std::atomic<uint64_t> hits{0}, misses{0};
  };
  // Rows of one update, on the host and on the device.
  struct Sent {
    Sent(DeviceArena& arena, size_t count, size_t stride);
    int64_t* keys;
    std::byte* rows;
  };

  void make_pools();
  void take_memory(uint64_t bytes);
  // Updates the GPU with `count` rows of pinned memory, and waits. The caller holds updates_mutex_.
  void send(const Place& place, ServingUpdate what, const Sent& here, size_t count,
            ServingTicket ticket);
  Sent pinned_rows(const Place& place, size_t count);
  // Runs change(); if it fails, no lookup uses the GPU any more.
  template <typename Change>
  void or_off(Change&& change);
  void fill_piece(size_t table, const int64_t* keys, size_t count);
  void fill_wanted();

  const std::shared_ptr<HotRows> rows_;
  const DeviceRowsOptions options_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::vector<Place> places_;  // by table
  std::unique_ptr<Lookups[]> lookups_;
  std::atomic<uint64_t> least_keys_{0};
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint8_t> now_{0};  // the clock of LRU
  ServingClock clock_;

  mutable std::mutex updates_mutex_;  // of all below
  const OwnStream updates_{OwnStream::Priority::kLow};
  mutable DeviceEvent updated_;
  DeviceBlock update_memory_;
  mutable PinnedBlock update_pinned_;
  std::vector<RowVersion> versions_;
  std::vector<ReadState> states_;
  std::vector<std::byte> stored_;

  mutable std::mutex off_mutex_;
  std::string why_off_;

  std::mutex memories_mutex_;
  std::vector<std::unique_ptr<CallMemory>> memories_;  // that no call uses

  std::mutex wanted_mutex_;
  std::condition_variable wanted_changed_;
  std::vector<std::pair<size_t, int64_t>> wanted_;  // table and key
  bool stops_ = false;
  std::thread filler_;  // the last: it uses all above
};

}  // namespace hotrow
