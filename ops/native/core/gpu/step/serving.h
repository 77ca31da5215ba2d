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
#pragma once

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

enum class ServingUpdate : int {
  kWrite = 0,     // cached rows change
  kWriteNew = 1,  // and others come in
  kRemove = 2,    // rows leave: keys that were deleted, or wait for a commit
};

size_t device_serving_update_scratch(size_t count);
// keys: (count), distinct. rows: as above, with their headers; unused by kRemove. A row with a
// smaller clock than the cached row's is skipped, so that an old fetch never undoes an update.
void device_serving_update(const DeviceCache& cache, ServingUpdate what, const int64_t* keys,
                           size_t count, uint8_t now, const std::byte* rows, size_t row_stride,
                           void* scratch, size_t bytes, DeviceStream stream);

}  // namespace hotrow
