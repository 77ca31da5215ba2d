// A device cache for serving: lookups run while rows change. No lookup takes a lock or waits, and
// none returns a torn row.
//
// The sets are those of gpu/kernels/cache.h; only their tags, times and versions are used here. A
// writer makes a set's version odd, changes the set and its rows, and makes it even (a seqlock: H.
// Boehm, Can seqlocks get along with programming language memory models?, 2012). A reader copies
// the row and reads the version again. When the version changed it tries again, a few times, and
// then reports kBusy: the store has the row.
//
// Lookups may be on any streams. Updates of one cache must be ordered by one stream, or by events.
//
// Freshness is that of HotRows. An update of a key that is not cached leaves no row to compare with
// a slow fetch of the older one. So a fetch carries a ticket, taken before it begins, and a write
// or removal marks the sets of its keys with a newer one. A fill with an older ticket than its
// set's is refused, for other keys of the set, too.
#pragma once

#include <atomic>

#include "core/gpu/kernels/cache.h"

namespace hotrow {

// The result of a key's lookup.
enum class Served : uint32_t {
  kMissing = 0,
  kFound = 1,
  kBusy = 2,  // its set kept changing: look it up elsewhere, as a missing one
};

// rows[i]: the header and line of key i, for those found. now: the caller's clock, which ticks with
// batches; the least recently used rows are evicted. Duplicate keys are legal. keys: (count). rows:
// (count, row_stride), row_stride a multiple of 16, at least that of the cache. served: (count).
void device_serving_lookup(const DeviceCache& cache, const int64_t* keys, size_t count, uint8_t now,
                           std::byte* rows, size_t row_stride, Served* served, DeviceStream stream);

// A cache that serves; the caller owns its memory.
struct ServingCache : DeviceCache {
  uint64_t* changed_at = nullptr;  // (set_count) the ticket of the set's last write or removal

  // As DeviceCache::take.
  static ServingCache take(DeviceArena& arena, size_t rows, size_t line_bytes);
};

// Frees all slots. Call it once before anything else.
void device_serving_clear(const ServingCache& cache, DeviceStream stream);

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
  kWrite = 0,   // cached rows change
  kFill = 1,    // and others come in: rows that a fetch found
  kRemove = 2,  // rows leave: keys that were deleted, or wait for a commit
};

size_t device_serving_update_scratch(size_t count);
// keys: (count), distinct. rows: as above, with their headers; unused by kRemove. A row with a
// smaller clock than the cached row's is skipped. ticket: of the fetch for kFill, else of the
// change.
void device_serving_update(const ServingCache& cache, ServingUpdate what, const int64_t* keys,
                           size_t count, uint8_t now, ServingTicket ticket, const std::byte* rows,
                           size_t row_stride, void* scratch, size_t bytes, DeviceStream stream);

}  // namespace hotrow
