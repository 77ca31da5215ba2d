// The hot rows of a server: a bounded cache of stored rows in front of a RowReader. Lookups take no
// lock and never read a torn row, while other threads fill and update the cache.
//
// Rows keep their stored type. Tables whose rows have one size share a pool, so that they compete
// for room by use; key and table together identify an entry. Sets of 16 ways, 24 bytes a slot in
// addition to the row: serving/hot_set.h. A lookup that finds a set being written tries again a few
// times, then treats the key as missing; the store has it.
//
// Freshness. An update of a key that is not cached leaves no entry to compare with a slow fetch of
// the older row. So fetches carry a ticket, taken before they begin, and every update or
// invalidation marks the sets of its keys with a newer one. A fill with an older ticket than its
// set's is refused. This may also refuse another key of the set, which is fetched again later.
// Cached rows are compared by version. Thus, once update() has returned, no lookup returns an older
// row, if the caller brought the store, or the overlay over it, up to date before.
//
// Unknown keys are not cached: the cache could not detect that they appear in the store.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/anonymous_array.h"
#include "core/base/cache_policy.h"
#include "core/serving/hot_set.h"
#include "core/store/row_reader.h"

namespace hotrow {

// Either rows or bytes is given. Pools share it in proportion to the stored bytes of their tables.
// No pool is larger than twice its tables, if all of them state their numbers of rows.
struct HotRowsOptions {
  uint64_t rows = 0;
  uint64_t bytes = 0;  // including overhead
  CachePolicy policy = CachePolicy::kLfu;
};

// Counts of a table's lookups and fills.
struct HotCounts {
  uint64_t hits = 0;
  uint64_t misses = 0;    // lookups, duplicates too
  uint64_t inserted = 0;  // rows that came in
  uint64_t evicted = 0;   // rows evicted for them
  uint64_t refused = 0;   // rows that a fill refused: not worth a slot, or perhaps old
  uint64_t updated = 0;   // cached rows that changed
  uint64_t removed = 0;   // cached rows that left: tombstones, invalidation
  uint64_t rows() const { return inserted - evicted - removed; }
};

class HotRows {
 public:
  // tables: of a generation; a table's number is its index. Fails with InvalidArgument unless
  // either rows or bytes is given, and with ResourceExhausted.
  HotRows(std::vector<StoredTable> tables, const HotRowsOptions& options);
  ~HotRows();
  HotRows(const HotRows&) = delete;
  HotRows& operator=(const HotRows&) = delete;

  const std::vector<StoredTable>& tables() const { return tables_; }

  // --- lookups ---------------------------------------------------------------------------------
  // Keys of a table, and one of two outputs for their rows. Duplicates are legal.
  struct Probe {
    size_t table = 0;
    const int64_t* keys = nullptr;  // (count)
    size_t count = 0;
    float* rows = nullptr;         // (count, width): the weights
    std::byte* records = nullptr;  // (count, row_bytes): the rows as stored
  };
  // A key that is not cached; the content of its place in the output is undefined.
  struct Miss {
    uint32_t probe;
    uint32_t position;  // index in the probe's keys
  };
  // Writes the rows of cached keys and appends the others to `misses`, in their order.
  // At most 2^32 - 1 keys a probe; fails with InvalidArgument.
  void gather(const Probe* probes, size_t count, std::vector<Miss>* misses);
  // Copies cached rows as they are stored, with their versions; the others are kUnknown. It counts
  // no lookup and no use.
  void read(const ReadRequest& read) const;

  // --- changes ---------------------------------------------------------------------------------
  // The ticket of a fetch that begins now.
  using Ticket = uint64_t;
  Ticket ticket() const { return clock_.load(std::memory_order_seq_cst); }

  // Offers the rows found by a read that began at `ticket`, with their versions.
  void fill(const ReadRequest& read, Ticket ticket);
  // From now on fills take no row that is newer: some lookups must not read it yet.
  void set_newest(RowVersion newest) { newest_.store(newest, std::memory_order_relaxed); }
  // Rows that changed in the store: a cached row is replaced, or removed by a tombstone, if it is
  // older. keys: (count), distinct. rows: (count, row_bytes); those of tombstones are not read.
  // versions: (count).
  void update(size_t table, const int64_t* keys, size_t count, const std::byte* rows,
              const RowVersion* versions);
  // Removes all rows of a virtual shard, in all tables. shards: V, as in store_shard_of.
  void invalidate_shard(size_t shard, size_t shards);
  // Removes all rows.
  void clear();

  // --- sizes and counts ------------------------------------------------------------------------
  size_t slots() const;
  // Reserved bytes of rows and their overhead, whether used or not.
  size_t bytes() const;
  HotCounts counts(size_t table) const;

 private:
  struct Pool;
  // A table's place in its pool.
  struct Place {
    Pool* pool;
    uint64_t salt;  // of its hashes
    uint8_t number;
    StoredType type;
    uint32_t width;
    uint32_t row_bytes;
    uint32_t words;  // of a row in the pool
  };
  struct Step;
  class Steps;

  enum Count { kHits, kMisses, kInserted, kEvicted, kRefused, kUpdated, kRemoved, kCounts };
  struct alignas(64) Counters {
    std::atomic<uint64_t> values[kCounts];
  };

  const Place& place(size_t table) const;
  // The thread's own counters, unless there are too many threads.
  Counters& counters(size_t table) const;
  void add(size_t table, Count which, uint64_t count) const {
    counters(table).values[which].fetch_add(count, std::memory_order_relaxed);
  }

  bool copy(const Step& step, const Probe& probe, std::byte* encoded, uint32_t* random) const;
  void note_use(HotSet& set, uint32_t way, uint32_t* random) const;
  Count fill_one(const Place& place, int64_t key, const std::byte* row, RowVersion version,
                 Ticket ticket);
  uint32_t choose(HotSet& set, uint64_t hash) const;
  void update_one(const Place& place, size_t table, int64_t key, const std::byte* row,
                  RowVersion version, Ticket now);
  template <typename Leaves>
  void remove_if(Leaves&& leaves);

  std::vector<StoredTable> tables_;
  CachePolicy policy_;
  std::vector<Place> places_;
  std::vector<std::unique_ptr<Pool>> pools_;
  AnonymousArray<Counters> counters_;  // (threads, tables)
  std::atomic<RowVersion> newest_{~RowVersion{0}};
  alignas(64) std::atomic<uint64_t> clock_{0};
};

}  // namespace hotrow
