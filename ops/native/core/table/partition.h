// A partition: the rows of a table whose hashed keys share their top bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/key_index.h"
#include "core/base/slab_memory.h"
#include "core/disk/line_log.h"
#include "core/kernels/kernels.h"
#include "core/table/admission.h"
#include "core/table/bypass_rows.h"
#include "core/table/partition_snapshot.h"
#include "core/table/row_place.h"
#include "core/table/table_options.h"
#include "core/table/tombstones.h"

namespace hotrow {

// What the partitions of a table share.
struct RowShape {
  explicit RowShape(const TableOptions& options);

  RowSpot spot_of(uint32_t place) const { return hotrow::spot_of(place, first_shift); }
  size_t block_rows(size_t block) const {
    return size_t{1} << (first_shift + (block >> RowSpot::kBlockBits));
  }

  TableOptions options;
  LineLayout layout;
  size_t line_bytes;
  size_t stride;       // header and line, in bytes; a multiple of 8
  size_t host_stride;  // bytes that the host tier keeps in memory: the same, or a header alone
  unsigned first_shift;
  const Kernels* kernels;
  // The lines on disk; null: lines follow their headers in memory. A row's line is in the device
  // tier, in the bypass of its partition, or here.
  std::unique_ptr<LineLog> log;
};

// Running totals since the table was made.
struct Totals {
  uint64_t admitted = 0;  // keys that were given a row
  uint64_t refused = 0;   // occurrences of keys that were not admitted
  uint64_t expired = 0;   // rows that expired
};

// The rows in a piece of an export. Pointers may be null; else they have room for the requested
// rows.
struct RowArrays {
  int64_t* keys = nullptr;
  std::byte* lines = nullptr;  // (N, line_bytes)
  uint32_t* clocks = nullptr;
  uint32_t* counts = nullptr;
  uint32_t* places = nullptr;
};

// Not synchronized, except that the readers of snapshots and the owner all hold `mutex` while a
// snapshot is open. P partitions of a table.
//
// A row lives at a place, which is a number, and never moves. Places of removed rows are reused,
// the smallest first. A place without a row has the clock kFree.
class Partition {
 public:
  static constexpr uint32_t kFree = 0xffffffffu;
  static constexpr uint32_t kAbsent = KeyIndex::kAbsent;

  // number: this partition's, below P.
  Partition(const RowShape& shape, SlabMemory& memory, size_t partitions, size_t number);
  Partition(const Partition&) = delete;

  mutable std::mutex mutex;

  size_t size() const { return index_.size(); }
  size_t places() const { return places_; }
  const RowShape& shape() const { return *shape_; }
  size_t bytes() const;  // without what it took from the table's memory

  // --- rows -------------------------------------------------------------------------------------
  const KeyIndex& index() const { return index_; }
  // A row's header; its line follows unless lines are on disk.
  std::byte* at(uint32_t place) const {
    const RowSpot spot = shape_->spot_of(place);
    return blocks_[spot.block] + spot.row * shape_->host_stride;
  }
  RowHeader& header(uint32_t place) const { return *reinterpret_cast<RowHeader*>(at(place)); }
  // The place of a key, or kAbsent.
  uint32_t find(uint64_t hash, int64_t key) const {
    return index_.find(hash, [&](uint32_t place) { return header(place).key == key; });
  }
  // As find, but counts `times` occurrences of an unknown key. With 0 only a table without
  // admission gives it a row. An admitted key gets a row with its initial values and the clock;
  // else returns kAbsent.
  // Fails with std::bad_alloc or ResourceExhausted; then no row changed.
  uint32_t find_or_insert(uint64_t hash, int64_t key, uint32_t times, uint32_t clock);
  // `undo` removes the rows that find_or_insert inserted since `begin`, takes back the occurrences
  // that it counted, and calls leave(hash, key) for each of these rows before; unless `keep`
  // was called. Neither of them fails. No row may have been removed meanwhile. Returns whether
  // there were such rows.
  void begin_changes();
  void keep_changes() noexcept;
  template <typename Leave>
  bool undo_changes(Leave&& leave) noexcept {
    const bool any = !inserted_.empty();
    for (; !inserted_.empty(); inserted_.pop_back()) {
      const Inserted& last = inserted_.back();
      leave(hash_at(last.place), header(last.place).key);
      take_back(last);
    }
    end_undo();
    return any;
  }
  // Inserts a row, or replaces the key's row. place: kAbsent picks one.
  void put(int64_t key, const std::byte* line, uint32_t clock, uint32_t count, uint32_t place);
  // Adds free places until there are `places` in total, free or used.
  void add_free_places(uint64_t places);
  // Removes a row. Its place becomes free.
  void remove(uint32_t place);
  // Drops everything but the last kept snapshots; relative to them, all rows count as removed. The
  // caller clears the memory.
  void clear();
  // Call before a step writes the line or header at a place.
  void before_write(uint32_t place) {
    if (watching_) note_write(place);
  }
  bool watching() const { return watching_; }
  // The same before a GPU writes a row back, which it does unless the row is up to date. newer: its
  // header there.
  void before_write_back(uint32_t place, const RowHeader& newer) {
    if (is_updated(header(place), newer)) before_write(place);
  }
  // Where rows lie; see RowSpot. Blocks are only added, until `clear`.
  const std::vector<std::byte*>& blocks() const { return blocks_; }
  // Brings a row up to date from its slot in the device tier. row: header and line. Returns whether
  // the row was out of date.
  bool write_back(uint32_t place, const std::byte* row);

  // --- lines on disk ----------------------------------------------------------------------------
  size_t number() const { return number_; }
  // Writes the first line of a row that has none yet. row: header and line.
  void make_line(int64_t key, std::byte* row) const;
  // The same with memory for the row's values, (D).
  void make_line(int64_t key, float* values, std::byte* row) const;
  // Rows in memory outside the device tier. They are written to disk when a later lookup of
  // training does not use them.
  BypassRows bypass;
  // Writes these rows to disk: all, or those that the last lookup did not use.
  void leave_bypass(BypassRows::Keep keep);
  // The row in memory, outside the device tier; reads it from disk if needed.
  std::byte* bring_in(uint32_t place);
  // Copies headers and lines of rows that are up to date. rows: (count, stride).
  void copy_rows(const uint32_t* places, size_t count, std::byte* rows) const;

  // Scans the next share of the places and lists those whose rows look expired at this step, in
  // swept(). Afterwards no `expire` of one of them fails. The caller calls it for rows that are
  // expired in the device tier, too, and then end_sweep.
  void prepare_sweep(uint32_t step);
  const std::vector<uint32_t>& swept() const { return swept_; }
  bool expired(const RowHeader& row, uint32_t step) const;
  void expire(uint32_t place, uint32_t step);
  void end_sweep();
  // The newest header of a row outside the device tier.
  const RowHeader& newest_header(uint32_t place) const;
  // Copies the rows at places [first, ...) until `count` rows; returns how many, and the place
  // after them.
  size_t export_rows(size_t first, size_t count, const RowArrays& out, size_t* next) const;
  void add_digest(bool weights_only, uint64_t digest[2]) const;

  // --- state besides rows -----------------------------------------------------------------------
  Totals totals;
  Tombstones tombstones;
  uint64_t sweep_place = 0;
  AdmissionFilter* admission() const { return admission_.get(); }

  // --- snapshots --------------------------------------------------------------------------------
  // The two kinds are independent: each has its marks, and may have an open snapshot.
  PartitionSnapshot& snapshot(SnapshotKind kind) { return snapshots_[number_of(kind)]; }
  const PartitionSnapshot& snapshot(SnapshotKind kind) const { return snapshots_[number_of(kind)]; }
  // As PartitionSnapshot::begin and so on.
  size_t begin_snapshot(SnapshotKind kind, bool due_only, bool digests);
  void end_snapshot(SnapshotKind kind, bool keep) noexcept;
  void track(SnapshotKind kind);
  void stop_tracking(SnapshotKind kind) noexcept;

 private:
  // A row since begin_changes.
  struct Inserted {
    uint32_t place;
    bool appended;  // the place was new
  };

  void take_back(const Inserted& row) noexcept;
  void end_undo() noexcept;
  void note_write(uint32_t place);
  void note_created(uint32_t place) noexcept;
  bool any_tracking() const;
  void reserve_in_index(uint64_t hash);
  void put_line(uint32_t place, const std::byte* line);
  uint32_t append_place();
  uint32_t take_place();
  void make_free(uint32_t place);
  uint64_t hash_at(uint32_t place) const { return mix64(static_cast<uint64_t>(header(place).key)); }

  const RowShape* shape_;
  SlabMemory* memory_;
  size_t number_;
  KeyIndex index_;
  std::vector<std::byte*> blocks_;
  size_t places_ = 0;
  std::vector<uint32_t> free_;  // a heap, the smallest on top; some are in use again
  std::unique_ptr<AdmissionFilter> admission_;
  std::vector<float> initial_;  // (D), scratch

  // Since begin_changes.
  bool recording_ = false;
  Totals totals_before_;
  std::vector<Inserted> inserted_;
  // Since prepare_sweep.
  std::vector<uint32_t> swept_;
  uint64_t swept_to_ = 0;

  bool watching_ = false;  // some kind of snapshots tracks
  std::array<PartitionSnapshot, kSnapshotKinds> snapshots_;
};

}  // namespace hotrow
