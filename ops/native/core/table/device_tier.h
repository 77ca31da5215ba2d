// The device tier of a table in the memory of a GPU, as the table sees it. gpu/step/tier.h is the
// one there is; a core that was built without CUDA refuses to make it (gpu/step/absent.cc).
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
  // Brings rows that are on their way from the device to the host tier.
  virtual void finish() = 0;
  // Frees all slots; rows on their way are lost, too.
  virtual void clear() = 0;
  // The headers of rows in slots; a clock of Partition::kFree where a key has none. Both (count).
  virtual void read_headers(const int64_t* keys, size_t count, RowHeader* headers) = 0;
  // Frees the slots of keys, (count), that lose their rows.
  virtual void drop(const int64_t* keys, size_t count) = 0;

  // As Prefetch::add and wait; without the table's lock.
  virtual void prefetch(const int64_t* keys, size_t count) = 0;
  virtual void wait_for_prefetch() = 0;
  // Gives the pins of all windows back.
  virtual void let_go_of_windows() = 0;
  // As RowCache::expect, for keys, (count), each of them used uses[i] times.
  virtual void expect(const int64_t* keys, const uint32_t* uses, size_t count) = 0;
};

// For the table's options. Fails with FailedPrecondition when there is no GPU or no CUDA.
std::unique_ptr<DeviceTier> make_gpu_tier(Table& table);

}  // namespace hotrow
