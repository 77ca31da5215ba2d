// Prefetching: brings the rows of the next batches into the device tier, on threads of its own.
// One operation a window of k batches, as in Colossal-AI; docs/design/0004-tiers.md.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/window_queue.h"
#include "core/table/row_cache.h"

namespace hotrow {

class RamTier;
class Table;

// A window is looked up in the table's lock, a piece at a time: its rows that are in the device
// tier are pinned, and the others that the host tier has are given slots. A second thread reads
// their lines without the lock, in the order of the keys, while the next window is looked up. A
// step that meets a row whose line is still on its way waits for it. Keys without a row are left to
// the step, which creates rows in its own order.
class Prefetch {
 public:
  // The tier is not finished yet, but for its cache.
  Prefetch(Table& table, RamTier& tier);
  ~Prefetch();

  // Takes the keys of the next window, those of its batches one after the other; copies them. Call
  // it when the first batch of the window before begins: the rows of that window and of this one
  // are pinned from now on; rows of earlier windows may be evicted. When more than two windows
  // wait, the oldest is skipped. Fails with the error of an earlier window.
  void add(const int64_t* keys, size_t count) { queue_.add(keys, count); }
  // Waits until every window was brought in.
  void wait();

  // --- in the table's lock, alone ---------------------------------------------------------------
  // Waits for the line of a loading slot and opens the slot. False: the line could not be read, and
  // the slot is free. Safe from several threads for slots of different partitions.
  bool wait_for(uint32_t slot);
  // Releases the pins of all windows.
  void let_go_of_all();
  // Waits for all lines on their way and opens their slots.
  void finish_loading();
  // Call it after finish_loading, when the device tier is emptied: all pins and lookups become
  // void.
  void forget();

 private:
  // A row on its way.
  struct Load {
    uint32_t slot;
    uint32_t partition;
    uint32_t place;
    bool open;              // by the thread that holds the table's lock
    bool failed;            // under progress_
    const std::byte* from;  // its line in the host tier, unless that is on disk
    std::byte* to;          // its line in the slot
  };

  void bring_in(const std::vector<int64_t>& keys);
  // Drops most repetitions of keys, and hashes the others.
  void take_in(const std::vector<int64_t>& keys);
  // Looks up the window's keys [first, last), in the table's lock.
  void look_up(size_t first, size_t last);

  void run_reader();
  // Queues the rows of a piece that were given slots, in the table's lock.
  void queue_fresh();
  // Reads loads; calls report(n) when the first n are there.
  template <typename Report>
  void read(const std::vector<Load>& loads, Report&& report) const;

  // In the table's lock: opens the slots whose lines were read, and removes their loads.
  void open_loaded();
  bool open(Load* load);
  // Releases up to `most` pins of the oldest window; the window ends with its last pin.
  void let_go(size_t most);
  // In progress_.
  uint64_t looked_up() const { return first_ + loads_.size(); }

  Table* table_;
  RamTier* tier_;
  RowCache* cache_;

  // The planner's own.
  size_t kept_ = 0;               // keys of the window
  std::vector<int64_t> keys_;     // (kept_), and room for all
  std::vector<uint64_t> hashes_;  // (kept_)
  std::vector<uint64_t> recent_;  // hashes of keys seen lately, by their low bits
  std::vector<uint32_t> missing_;
  std::vector<Load> fresh_;

  // In the table's lock.
  struct Window {
    RowCache::Pin pin;
    std::vector<uint32_t> slots;  // pinned by it; some more than once
  };
  std::deque<Window> windows_;  // the last two
  uint64_t next_window_ = 0;
  uint64_t voided_ = 0;  // how often forget was called

  // Loads in the order in which they are read; numbers count from the start. Writers hold both the
  // table's lock and progress_, so readers need only one of them.
  std::mutex progress_;
  std::condition_variable progressed_;
  std::deque<Load> loads_;
  uint64_t first_ = 0;   // number of the first of loads_
  uint64_t loaded_ = 0;  // loads before this number were read; in progress_
  bool stop_reading_ = false;
  std::exception_ptr read_error_;
  std::vector<Load> request_;  // the reader's own

  std::thread reader_;
  WindowQueue queue_;  // the last: its thread, the planner, uses all above
};

}  // namespace hotrow
