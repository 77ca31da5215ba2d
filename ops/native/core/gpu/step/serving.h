// A device cache that serves: lookups go on while rows change. No lookup takes a lock or waits, and
// none sees a torn row.
//
// The sets are those of gpu/kernels/cache.h; what is used here is tags, times and versions. A
// writer makes a set's version odd, changes the set and its rows, and makes it even (a seqlock: H.
// Boehm, Can seqlocks get along with programming language memory models?, 2012). A reader copies
// what it found and looks at the version again; when it moved it tries again, a few times, and then
// says that the key is missing: the store has it.
//
// Lookups may be on any streams. Updates of one cache must be ordered by one stream, or by events.
#pragma once

#include "core/gpu/kernels/cache.h"

namespace hotrow {

// What became of a key.
enum class Served : uint32_t {
  kMissing = 0,
  kFound = 1,
  kBusy = 2,  // its set kept changing: to be looked up elsewhere, as a missing one
};

// rows[i]: the header and line of key i, for those found. now: a clock of the caller's that ticks
// with batches; rows that were not used for longest are evicted. Duplicate keys are legal.
// keys: (count). rows: (count, row_stride), row_stride a multiple of 16, at least that of the
// cache. served: (count).
void device_serving_lookup(const DeviceCache& cache, const int64_t* keys, size_t count, uint8_t now,
                           std::byte* rows, size_t row_stride, Served* served, DeviceStream stream);

enum class ServingUpdate : int {
  kWrite = 0,     // rows that are there change
  kWriteNew = 1,  // and others come in
  kRemove = 2,    // rows leave: keys that were deleted, or wait for a commit
};

size_t device_serving_update_scratch(size_t count);
// keys: (count), distinct. rows: as above, with their headers; unused by kRemove. A row whose clock
// is smaller than that of the row that is there is passed over, so that an old fetch never undoes
// an update.
void device_serving_update(const DeviceCache& cache, ServingUpdate what, const int64_t* keys,
                           size_t count, uint8_t now, const std::byte* rows, size_t row_stride,
                           void* scratch, size_t bytes, DeviceStream stream);

}  // namespace hotrow
