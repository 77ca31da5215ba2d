// A device cache for serving: lookups run while rows change. No lookup takes a lock or waits, and
// none returns a torn row. The sibling of serving/hot_rows.h.
//
// The sets are those of gpu/kernels/cache.h, of which the states are not used. A writer makes a
// set's version odd, changes the set and its rows, and makes it even (a seqlock: H. Boehm, Can
// seqlocks get along with programming language memory models?, 2012). A reader copies the row and
// reads the version again. When the version changed it tries again, a few times, and then treats
// the key as missing: the host has the row. See gpu/serving/read_row.h.
//
// Lookups may be on any streams. Updates of one cache must be ordered by one stream, or by events.
//
// Freshness is that of HotRows. An update of a key that is not cached leaves no row to compare with
// a slow fetch of the older one. So a fetch carries a ticket, taken before it begins, and a write
// or removal marks the sets of its keys with a newer one. A fill with an older ticket than its
// set's is refused, for other keys of the set, too. Cached rows are compared by version.
#pragma once

#include <atomic>

#include "core/gpu/kernels/cache.h"
#include "core/store/row_reader.h"

namespace hotrow {

// Before each cached row.
struct ServedHeader {
  int64_t key;
  RowVersion version;
};
static_assert(sizeof(ServedHeader) == sizeof(RowHeader));

// Totals of a cache, on the device.
struct ServingCounts {
  unsigned long long inserted;  // rows that came in
  unsigned long long evicted;   // rows that left for them
  unsigned long long refused;   // rows that a fill refused: not worth a slot, or perhaps old
  unsigned long long updated;   // cached rows that changed
  unsigned long long removed;   // cached rows that left: tombstones, invalidation
};

// A cache for the rows of tables whose stored rows have one size; the caller owns its memory.
struct ServingCache : DeviceCache {
  uint64_t* changed_at = nullptr;   // (set_count) the ticket of the set's last write or removal
  const uint64_t* salts = nullptr;  // (tables) of the hashes, by number
  ServingCounts* counts = nullptr;  // one

  // As DeviceCache::take.
  static ServingCache take(DeviceArena& arena, size_t rows, size_t row_bytes, size_t tables,
                           CachePolicy policy);
};

// A table in its cache.
struct ServedTable {
  uint32_t number = 0;
  uint64_t salt = 0;
};

// Frees all slots and clears the counts. Call it once before anything else. salts: (tables) on the
// host.
void device_serving_clear(const ServingCache& cache, const uint64_t* salts, size_t tables,
                          DeviceStream stream);

using ServingTicket = uint64_t;

// The tickets of a cache. Safe from several threads.
class ServingClock {
 public:
  // Of a fetch that begins now.
  ServingTicket fetch() const { return clock_.load(std::memory_order_seq_cst); }
  // Of a write or removal that the store has made already: a fetch that has this ticket or a newer
  // one reads it there.
  ServingTicket change() { return clock_.fetch_add(1, std::memory_order_seq_cst) + 1; }

 private:
  std::atomic<ServingTicket> clock_{0};
};

enum class ServingUpdate : int {
  kWrite = 0,  // cached rows change; those whose version is a tombstone's leave
  kFill = 1,   // and others come in: rows that a fetch found
};

size_t device_serving_update_scratch(size_t count);
// keys: (count) of the table, distinct. rows: (count, row_stride): headers and stored rows,
// row_stride a multiple of 16, at least that of the cache. A row that is not newer than the cached
// one is skipped. now: the clock of CachePolicy::kLru, which ticks with updates. ticket: of the
// fetch for kFill, else of the change. All on the device.
void device_serving_update(const ServingCache& cache, const ServedTable& table, ServingUpdate what,
                           const int64_t* keys, size_t count, uint8_t now, ServingTicket ticket,
                           const std::byte* rows, size_t row_stride, void* scratch, size_t bytes,
                           DeviceStream stream);

// Removes the rows of a virtual shard of all tables, shards as in store_shard_of; of all shards
// when there is one.
void device_serving_remove(const ServingCache& cache, uint32_t shard, uint32_t shards,
                           ServingTicket ticket, DeviceStream stream);

}  // namespace hotrow
