// Prefetching for rows in the memory of a GPU: the sibling of Prefetch.
//
// A window's distinct keys are looked up on the device, a piece at a time, in the table's lock.
// Rows that are there are pinned; others that the host tier has take slots at once: victims go out
// and lines come in by the tier's ways, on a stream of prefetching's own. Nobody waits for the
// lines: what a step puts on its stream comes after them (GpuTier::begin). Keys without a row are
// left to the step, which creates rows in its own order.
#pragma once

#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "core/base/unique.h"
#include "core/base/window_queue.h"
#include "core/gpu/kernels/cache.h"
#include "core/gpu/kernels/runtime.h"

namespace hotrow {

class GpuTier;
class Table;

class DevicePrefetch {
 public:
  // To be made while the tier's GPU is the thread's.
  DevicePrefetch(Table& table, GpuTier& tier);
  ~DevicePrefetch();

  // As those of Prefetch.
  void add(const int64_t* keys, size_t count) { queue_.add(keys, count); }
  void wait() { queue_.wait(); }

  // --- in the table's lock, alone ---------------------------------------------------------------
  // Gives the pins of all windows back.
  void let_go_of_all();
  // When slots were freed, on that stream: they are no window's any more.
  void leave_out_free(DeviceStream stream);
  // When all slots are freed: what was pinned or looked up is void.
  void forget();
  // Of the device's memory.
  size_t bytes() const;

 private:
  // Distinct keys [0, looked_up) of a window were looked up, and pin their slots.
  struct Window {
    DeviceBlock memory;
    uint32_t* slots = nullptr;  // (looked_up) on the device; kNoSlot: of no row that is there
    size_t looked_up = 0;
  };
  struct Piece;
  struct Answer;

  void bring_in(const std::vector<int64_t>& keys);
  std::unique_lock<std::shared_mutex> lock_beside_steps();
  size_t piece_keys() const;
  // Looks up the window's distinct keys [first, last), in the table's lock.
  void look_up(Window* window, size_t first, size_t last);
  void bring_in_missing(const Piece& piece, const Answer& answer, size_t first, size_t missing);
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
  uint64_t voided_ = 0;  // how often a window was given up before its time
  DeviceBlock piece_, released_;
  PinnedBlock answer_;

  WindowQueue queue_;  // the last: its thread, the planner, uses all above
};

}  // namespace hotrow
