// The device tier of a table, as the table sees it: slots for its hot rows. One class for each
// device that it can be on: none (below), RAM (table/ram_tier.h), the memory of a GPU
// (gpu/step/tier.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/kernels/row_line.h"

namespace hotrow {

class Table;

// A row in a slot is newer than the host tier's; so is one that is on its way from the device. All
// calls but those that say otherwise: in the table's lock, alone.
class DeviceTier {
 public:
  virtual ~DeviceTier() = default;

  virtual size_t slots() const = 0;
  // Of the device's memory.
  virtual size_t bytes() const = 0;
  // Brings the host tier up to date; rows stay where they are, clean. Returns how many were behind.
  virtual size_t settle() = 0;
  // Frees all slots; rows on their way are lost, too.
  virtual void clear() = 0;
  // The headers of rows in slots; a clock of Partition::kFree where a key has none. Both (count).
  // In RAM also from several threads, for keys of different partitions; so is drop.
  virtual void read_headers(const int64_t* keys, size_t count, RowHeader* headers) = 0;
  // Frees the slots of keys, (count), that lose their rows. Each has a slot.
  virtual void drop(const int64_t* keys, size_t count) = 0;

  // As Prefetch::add and wait; without the table's lock.
  virtual void prefetch(const int64_t* keys, size_t count) = 0;
  virtual void wait_for_prefetch() = 0;
  // Gives the pins of all windows back.
  virtual void let_go_of_windows() = 0;
  // As RowCache::expect, for keys, (count), each of them used uses[i] times.
  virtual void expect(const int64_t* keys, const uint32_t* uses, size_t count) = 0;
};

// Of a table whose rows are in the host tier alone.
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

// For the table's options. Fails with FailedPrecondition when there is no GPU or no CUDA.
std::unique_ptr<DeviceTier> make_gpu_tier(Table& table);

}  // namespace hotrow
