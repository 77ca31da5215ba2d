// Prefetching for rows in the memory of a GPU: the sibling of Prefetch.
//
// A window's distinct keys are looked up on the device, a piece at a time, in the table's lock.
// Rows in slots are pinned; other rows of the host tier get slots at once. They come in, and
// victims go out, on a stream only for prefetching. No thread waits for the lines: a step's work on
// its stream comes after them (GpuTier::begin). Keys without a row are left to the step, which
// creates rows in its own order.
#pragma once

#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "core/base/unique.h"
#include "core/base/window_queue.h"
#include "core/gpu/kernels/cache.h"
#include "core/gpu/kernels/runtime.h"
#include "core/gpu/step/host_rows.h"

namespace hotrow {

class GpuTier;
class Table;

class DevicePrefetch {
 public:
  // Construct it while the tier's GPU is current in the thread.
  DevicePrefetch(Table& table, GpuTier& tier);
  ~DevicePrefetch();

  // As in Prefetch.
  void add(const int64_t* keys, size_t count) { queue_.add(keys, count); }
  void wait() { queue_.wait(); }

  // --- in the table's lock, alone ---------------------------------------------------------------
  // Releases the pins of all windows.
  void let_go_of_all();
  // Call it after slots were freed on that stream: removes them from the windows.
  void leave_out_free(DeviceStream stream);
  // Call it when all slots are freed: all pins and lookups become void.
  void forget();
  // Bytes of the device's memory.
  size_t bytes() const;

 private:
  // Distinct keys [0, looked_up) of a window were looked up, and pin their slots.
  struct Window {
    DeviceBlock memory;
    uint32_t* slots = nullptr;  // (looked_up) on the device; kNoSlot: the row has no slot
    size_t looked_up = 0;
  };
  struct Piece;
  struct Answer;

  void bring_in(const std::vector<int64_t>& keys);
  size_t piece_keys() const;
  // Looks up the window's distinct keys [first, last), in the table's lock.
  void look_up(Window* window, size_t first, size_t last);
  void bring_in_missing(const Piece& piece, const Answer& answer, size_t first, size_t missing);
  // Chooses the slots of the missing keys, `found` of which have a row, and moves the rows.
  void give_slots(const Piece& piece, const Answer& answer, size_t missing, size_t found);
  void let_go(Window* window);

  Table* table_;
  GpuTier* tier_;

  // The planner's own.
  Unique unique_;
  DeviceEvent idle_;

  // In the table's lock.
  OwnStream stream_;
  DeviceEvent ready_;
  Window windows_[2];  // the last two
  size_t next_window_ = 0;
  uint64_t voided_ = 0;  // how often windows were dropped early
  DeviceBlock piece_, released_;
  PinnedBlock answer_;
  NewHostBlocks new_blocks_;

  WindowQueue queue_;  // the last: its thread, the planner, uses all above
};

}  // namespace hotrow
