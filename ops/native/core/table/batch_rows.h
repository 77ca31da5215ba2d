// The distinct rows of one table in a batch: the forward pass finds them, its backward pass uses
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/executor.h"
#include "core/base/unique.h"
#include "core/kernels/feature.h"
#include "core/table/find.h"
#include "core/table/table.h"

namespace hotrow {

// N keys of all features of the table in one row; U of them distinct. With several threads the keys
// are first grouped (dispatched) by the partitions that hold them, and a group belongs to one
// thread. Reuses its memory from batch to batch.
class BatchRows {
 public:
  struct Group {
    // Of the keys in the batch, ascending; empty in a lone group, where key i has position i.
    const uint32_t* positions = nullptr;  // (n)
    const int64_t* keys = nullptr;        // (n)
    size_t count = 0;                     // n
    Unique unique;
    std::vector<uint32_t> added;    // (U of the group), unless each key stands for one lookup
    std::vector<uint32_t> places;   // (U of the group)
    std::vector<std::byte*> lines;  // (U of the group): headers; null: no row
    // The distinct keys whose row was not at its most likely place.
    std::vector<uint32_t> elsewhere;
    std::vector<uint32_t> pinned;  // slots of the device tier, during find_rows
    std::vector<std::byte> read;   // rows that a lookup without training read from disk
    std::vector<LineLog::Read> reads;
    CacheCounts cached;

    // (U of the group): of each distinct key.
    const uint32_t* lookups() const { return added.empty() ? unique.counts() : added.data(); }
  };

  // Takes the keys, which must live until find_rows; `features` are this table's. Fails when a key
  // is out of the vocabulary or row_splits are wrong.
  void collect(Table& table, const std::vector<const Feature*>& features, size_t threads);

  // --- the phases, one after the other; the calls of a phase may run at the same time -----------
  size_t chunk_count() const { return chunks_; }  // 0: the group is a lone one, nothing to do
  void count_chunk(size_t chunk);
  void end_count();
  void scatter_chunk(size_t chunk);
  size_t group_count() const { return groups_; }
  // Finds the rows of a group's keys. The caller holds the table's lock, exclusively unless kRead.
  void find_rows(size_t group, Find how);
  // Call it after the last find_rows, even when one failed.
  void end_find(Find how);

  Table& table() const { return *table_; }
  size_t key_count() const { return count_; }
  const Group& group(size_t g) const { return all_[g]; }
  // By position: the line of each key's row; the table's default line where there is none.
  const std::byte* const* line_of() const { return line_of_.data(); }
  uint64_t epoch() const { return epoch_; }

 private:
  // The keys of a feature, and the position of its first key.
  struct Part {
    size_t first;
    const int64_t* keys;
    size_t count;
    const uint32_t* lookups;
  };
  // visit(position, key, group) for the keys of a chunk.
  template <typename Visit>
  void each_of(size_t chunk, Visit&& visit) const;
  Partition& partition_of(const Group& group, size_t u) const {
    return table_->partition(
        table_->partition_number(group.unique.keys()[u], group.unique.hashes()[u]));
  }
  // The place of a distinct key; the key may get a row.
  uint32_t find_place(Partition& partition, const Group& group, size_t u, Find how) const;
  void find_in_host(Group& group, Find how);
  // Finds the first `missed` of group.elsewhere in the host tier, one by one.
  void find_elsewhere(Group& group, size_t missed, Find how);
  void find_in_tiers(size_t g, Find how);
  // Handles the first `missed` of group.elsewhere, whose places are known. For training, rows that
  // are worth a slot go into the device tier.
  void bring_in(Group& group, size_t missed);
  // The same for lines on disk: reads all of them into memory. For training they go into the device
  // tier or the bypass, else into memory of this batch.
  void bring_in_from_disk(Group& group, size_t missed, bool training);
  // Visits the partitions that only this group uses.
  template <typename Visit>
  void each_partition(size_t g, Visit&& visit);
  // Adds up the lookups of each distinct key.
  void add_lookups(Group& group) const;
  void take_slot(Group& group, size_t u, uint32_t slot);

  Table* table_ = nullptr;
  size_t count_ = 0;  // N
  std::vector<Part> parts_;
  bool counted_ = false;                   // a key may stand for several lookups
  std::vector<const std::byte*> line_of_;  // (N)
  uint64_t epoch_ = 0;
  size_t threads_ = 1;
  size_t groups_ = 1;
  unsigned group_shift_ = 63;
  size_t chunks_ = 0;
  std::vector<size_t> chunk_counts_;   // (chunks, groups): later, where each goes
  std::vector<int64_t> grouped_keys_;  // (N)
  std::vector<uint32_t> positions_;    // (N)
  std::vector<Group> all_;
};

// Locks the partitions of a group while a snapshot is open; else does nothing. Only the reader of
// the snapshot may use these partitions at the same time.
class GroupLock {
 public:
  GroupLock(Table& table, size_t group, size_t groups);
  ~GroupLock();
  GroupLock(const GroupLock&) = delete;

 private:
  template <typename Visit>
  void each(Visit&& visit);

  Table& table_;
  const size_t group_;
  const size_t share_;  // partitions of each shard; 0: not locked
};

// What the last forward passes of a layer found, so that backward need not search again.
struct FoundRows {
  int64_t ticket = 0;
  std::vector<std::unique_ptr<BatchRows>> tables;
};

}  // namespace hotrow
