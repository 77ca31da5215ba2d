// The interface of a table's device tier: slots for its hot rows. There is one class for each
// device: none (below), RAM (table/ram_tier.h), the memory of a GPU (gpu/step/tier.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/kernels/feature.h"
#include "core/kernels/row_line.h"

namespace hotrow {

class Table;

// What steps on the device counted: updates of rows, those left out because the row would not have
// been finite, and rows that were brought up to date in the host tier.
struct UpdateTotals {
  uint64_t updates = 0, nonfinite = 0, written_back = 0;
};

// A row in a slot is newer than the host tier's; so is a row on its way from the device. The caller
// holds the table's lock exclusively, unless a comment says otherwise.
class DeviceTier {
 public:
  virtual ~DeviceTier() = default;

  virtual size_t slots() const = 0;
  // Bytes of the device's memory.
  virtual size_t bytes() const = 0;
  // Brings the host tier up to date; rows stay in their slots, clean. Returns how many were out of
  // date.
  virtual size_t settle() = 0;
  // Waits until no work of the device writes rows of the host tier. In the lock, which others may
  // share.
  virtual void wait_for_host_rows() {}
  // Does most of the work of a settle that follows, a piece of it at a time in the table's lock:
  // steps go on between the pieces. The caller does not hold the lock.
  virtual void settle_ahead() {}
  // Frees all slots; rows on their way are lost.
  virtual void clear() = 0;
  // Reads the headers of rows in slots; the clock is Partition::kFree where a key has no slot. Both
  // arrays (count). In RAM, several threads may call this and drop for keys of different
  // partitions.
  virtual void read_headers(const int64_t* keys, size_t count, RowHeader* headers) = 0;
  // Frees the slots of keys, (count), whose rows are removed. Each key has a slot.
  virtual void drop(const int64_t* keys, size_t count) = 0;

  // Returns what was counted on the device since the last call, or the last settle.
  virtual UpdateTotals take_updates() { return {}; }

  // As Prefetch::add and wait. The caller does not hold the table's lock.
  virtual void prefetch(const int64_t* keys, size_t count) = 0;
  virtual void wait_for_prefetch() = 0;
  // Releases the pins of all windows.
  virtual void let_go_of_windows() = 0;
  // Copies features from the host's memory for a step on the device that looks them up; null where
  // steps read the host's memory. The caller does not hold the table's lock.
  virtual std::shared_ptr<void> copy_ahead(const std::vector<Feature>&) { return nullptr; }
  // As RowCache::expect, for keys, (count), each of them used uses[i] times.
  virtual void expect(const int64_t* keys, const uint32_t* uses, size_t count) = 0;
};

// The tier of a table whose rows are only in the host tier.
class NoTier final : public DeviceTier {
 public:
  size_t slots() const override { return 0; }
  size_t bytes() const override { return 0; }
  size_t settle() override { return 0; }
  void clear() override {}
  void read_headers(const int64_t* keys, size_t count, RowHeader* headers) override;
  void drop(const int64_t*, size_t) override {}
  void prefetch(const int64_t*, size_t) override {}
  void wait_for_prefetch() override {}
  void let_go_of_windows() override {}
  void expect(const int64_t*, const uint32_t*, size_t) override {}
};

// Makes the tier that the table's options describe. Fails with FailedPrecondition when there is no
// GPU or no CUDA.
std::unique_ptr<DeviceTier> make_gpu_tier(Table& table);

}  // namespace hotrow
