// The device tier of tables in the memory of a device: a bounded cache of row lines, the sibling of
// RowCache. See docs/design/0004-tiers.md, and 0005-cuda.md for the steps of a batch.
//
// Sets of 32 ways, one warp for each key. A slot takes 28 bytes in addition to the line, header
// included; nothing grows with the table. Decisions depend on the batch alone, not on the order of
// threads: first all uses of a batch are counted, then its missing keys come in, in their order.
//
// All functions work on the tables of a layer together: T tables, U distinct keys
// (gpu/kernels/unique.h), M of them missing. Pointers are to the device, except for the caches of
// device_cache_insert. Calls for one cache must be ordered by one stream, or by events.
#pragma once

#include "core/gpu/kernels/memory.h"
#include "core/gpu/kernels/unique.h"
#include "core/kernels/row_line.h"
#include "core/table/row_cache.h"

namespace hotrow {

constexpr uint32_t kDeviceWays = 32;
constexpr uint32_t kNoSlot = 0xffffffffu;  // also: no place
constexpr uint32_t kSketchWords = 14;      // of 16 counters of 4 bits each

// As RowCache::Set. 256 bytes of slots, 128 bytes of frequencies of keys without a slot.
struct alignas(128) DeviceSet {
  uint8_t tags[kDeviceWays];  // 0: free
  uint8_t states[kDeviceWays];
  uint8_t frequencies[kDeviceWays];
  uint8_t used_at[kDeviceWays];  // in some uses of the set
  uint32_t places[kDeviceWays];  // in the host tier
  uint64_t sketch[kSketchWords];
  uint32_t uses;   // before this batch
  uint32_t fresh;  // in this batch so far
  uint32_t since_decay;
  uint32_t version;  // of a set that serves: odd while it changes
};
static_assert(sizeof(DeviceSet) == 384);
static_assert(sizeof(RowHeader) + sizeof(DeviceSet) / kDeviceWays <= 32, "bytes a slot");

// One table's cache; the caller owns its memory.
struct DeviceCache {
  DeviceSet* sets = nullptr;   // (set_count)
  std::byte* lines = nullptr;  // (slots, stride): headers and lines
  uint32_t set_count = 0;
  uint32_t stride = 0;  // bytes, a multiple of 16
  CachePolicy policy = CachePolicy::kLfu;

  size_t slots() const { return size_t{set_count} * kDeviceWays; }
  // At least `rows` slots, for lines of line_bytes. Fails when slot numbers do not fit 32 bits.
  static DeviceCache take(DeviceArena& arena, size_t rows, size_t line_bytes, CachePolicy policy);
};

// Frees all slots and clears all uses. Call it once before anything else.
void device_cache_clear(const DeviceCache& cache, DeviceStream stream);

// --- lookup ------------------------------------------------------------------------------------

// Where the rows of a batch are.
struct DeviceProbed {
  std::byte** lines = nullptr;        // (U) pointers to headers; null: no row (yet)
  uint32_t* slots = nullptr;          // (U) of the table's cache, or kNoSlot
  uint32_t* places = nullptr;         // (U) in the host tier; of missing keys after insert
  uint32_t* missing = nullptr;        // (M) distinct keys that have no slot, ascending
  int64_t* missing_keys = nullptr;    // (M)
  uint32_t* missing_first = nullptr;  // (T + 1): of table t; the last is M

  // Room for U = N.
  static DeviceProbed take(DeviceArena& arena, size_t count, size_t tables);
};

enum class DeviceLookup : int {
  kRead = 0,   // changes nothing
  kPin = 1,    // rows that are there are pinned
  kTrain = 2,  // pinned, dirty, and the use is counted
};

size_t device_cache_probe_scratch(size_t count);
// Finds the rows that are in their caches. caches: (T) on the device. count: N.
void device_cache_probe(const DeviceCache* caches, size_t tables, const DeviceUnique& unique,
                        size_t count, DeviceLookup how, const DeviceProbed& probed, void* scratch,
                        size_t bytes, DeviceStream stream);

// Removes one pin of each slot of a probe. A pinned row is not evicted. caches: (T) on the device.
void device_cache_unpin(const DeviceCache* caches, size_t tables, const uint32_t* table_first,
                        const uint32_t* slots, size_t count, const DeviceIf& condition,
                        DeviceStream stream);

// Replaces the free slots of a list, (count), by kNoSlot.
void device_cache_leave_out_free(const DeviceCache& cache, uint32_t* slots, size_t count,
                                 DeviceStream stream);

// Raises the frequencies of keys that will be used, as if each was used uses[i] times lately. As
// RowCache::expect. keys, uses: (count) of one table.
void device_cache_expect(const DeviceCache& cache, const int64_t* keys, const uint32_t* uses,
                         size_t count, DeviceStream stream);

// --- rows come in ------------------------------------------------------------------------------

// Rows that have no slot during a batch: their lines lie in the caller's buffer.
struct DeviceBypass {
  std::byte* lines = nullptr;  // (room for M, stride)
  size_t stride = 0;           // bytes; a multiple of 16
};

// What insert decided.
struct DeviceInserted {
  std::byte** targets = nullptr;      // (M) where the row's header and line must be written: in
                                      // a slot or the bypass; null: it has no row
  RowHeader* victims = nullptr;       // (M) headers of the dirty rows that targets have now
  uint32_t* victim_places = nullptr;  // (M) of these rows; kNoSlot: there is none
  uint32_t* bypass_places = nullptr;  // (B) of the rows in the bypass, in the order of keys
  int64_t* bypass_keys = nullptr;     // (B)
  uint32_t* bypass_first = nullptr;   // (T + 1): of table t; the last is B
  uint32_t* evicted = nullptr;        // (T): rows evicted, clean ones too; follows bypass_first

  // Room for B = M.
  static DeviceInserted take(DeviceArena& arena, size_t missing, size_t tables);
};

size_t device_cache_insert_scratch(size_t missing, size_t tables);
// Gives slots to missing keys that have a row. With kLfu and kIfWorthMore a key must have been used
// more often than the least used unpinned row of its set. Keys without a slot go through the
// bypass. New rows are pinned; kTrain counts the misses' uses and makes new rows dirty. Afterwards
// rows must go both ways (gpu/kernels/lines.h). missing: M, which the caller has
// read from the probe. places: (M) in the host tier, kNoSlot: no row.
void device_cache_insert(const DeviceCache* caches, size_t tables, const DeviceUnique& unique,
                         const DeviceProbed& probed, size_t missing, const uint32_t* places,
                         DeviceLookup how, RowCache::Admit admit, const DeviceBypass& bypass,
                         const DeviceInserted& out, void* scratch, size_t bytes,
                         DeviceStream stream);

// --- rows leave --------------------------------------------------------------------------------

// Frees the slots of keys, without writing back. keys: (count) of one table; pinned rows go, too.
void device_cache_drop(const DeviceCache& cache, const int64_t* keys, size_t count,
                       DeviceStream stream);

// Dirty rows of a piece of a cache.
struct DeviceDirty {
  std::byte** lines = nullptr;   // (R) in the order of slots
  uint32_t* places = nullptr;    // (R)
  RowHeader* headers = nullptr;  // (R)
  uint32_t* count = nullptr;     // one: R

  // Room for R = slots.
  static DeviceDirty take(DeviceArena& arena, size_t slots);
};

size_t device_cache_dirty_scratch(size_t slots);
// Lists the dirty rows among slots [first, first + slots), and makes them clean: the caller writes
// them back.
void device_cache_dirty(const DeviceCache& cache, size_t first, size_t slots,
                        const DeviceDirty& out, void* scratch, size_t bytes, DeviceStream stream);

}  // namespace hotrow
