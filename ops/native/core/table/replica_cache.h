// Bounded staleness after HET (Miao et al., VLDB 2022): a rank's replicas of other ranks' hot rows.
// docs/design/0009-ranks.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/anonymous_array.h"
#include "core/base/key_index.h"
#include "core/kernels/kernels.h"
#include "core/table/staleness.h"
#include "core/table/update_counts.h"

namespace hotrow {

class Table;

// A rank's updates of a row that its owner has not received yet.
struct PendingGradient {
  int64_t key;
  uint32_t updates;             // steps
  uint32_t lookups;             // in them
  std::vector<float> gradient;  // (D) their sum
};

// A bounded number of other ranks' rows, of all tables of a layer whose lines have one layout. The
// hottest rows are kept, whatever their table. A new row replaces the least used of some sampled
// rows when its key was used more often lately (LFU with decaying counts). Weights and state are
// float32 here, whatever their type at the owner. The rank applies its own updates at once, so that
// it reads what it wrote, and sums them until it sends them to the owner. D width.
//
// Several threads may serve different tables at the same time. Only one thread may call
// begin_batch, note_uses, take and clear, while no other thread uses the cache.
class ReplicaCache {
 public:
  static constexpr uint32_t kNone = KeyIndex::kAbsent;

  // layout: of the tables' lines. rows: capacity for all tables together.
  ReplicaCache(const LineLayout& layout, size_t rows, size_t tables);

  const LineLayout& layout() const { return layout_; }
  // Floats of state in a line.
  size_t state_floats() const { return layout_.vectors * layout_.width + layout_.scalars; }
  size_t size() const { return slots_.size() - free_.size(); }
  size_t capacity() const { return capacity_; }

  // A batch begins: slots that are found or taken from now on stay until the next one.
  void begin_batch() { ++batch_; }
  // The slot of a key's row, or kNone; counts a use. Call it once for each key of the batch.
  uint32_t use(size_t table, int64_t key);
  // Notes that `count` keys were used.
  void note_uses(size_t count);
  // After use, a slot for a key that has none, if its row is worth keeping; else kNone. The pending
  // gradient of an evicted row is appended to its table's `evicted`.
  uint32_t take(size_t table, int64_t key);
  // The slot, or kNone; counts no use.
  uint32_t find(size_t table, int64_t key) const;

  // Pending gradients of evicted rows; their owners have not received them yet.
  std::vector<PendingGradient>& evicted(size_t table) { return evicted_[table]; }

  std::byte* line(uint32_t slot) { return lines_.data() + size_t{slot} * stride_; }
  float* weights(uint32_t slot);  // (D)
  float* state(uint32_t slot);    // (state_floats)
  float* sum(uint32_t slot);      // (D) of gradients that the owner has not received
  struct Facts {
    uint32_t version;        // updates of the row at its owner when it came, and the own since that
                             // they were sent to the owner
    uint32_t state_version;  // the same when its state came
    uint32_t updates;        // own steps that the owner has not received
    uint32_t lookups;        // in them
    uint32_t filled;         // 0: the row has not come
  };
  Facts& facts(uint32_t slot);

  // Appends the pending gradients of all rows of a table; they count as sent.
  void push_all(size_t table, std::vector<PendingGradient>* pending);
  // Removes all rows of a table.
  void clear(size_t table);

 private:
  static constexpr size_t kSketchRows = 4;
  static constexpr uint32_t kFree = 0xffffffffu;

  struct Slot {
    int64_t key;
    uint32_t table = kFree;  // kFree: no key's
    uint32_t uses;           // recent uses
    uint64_t batch;          // the last that needs it
  };

  static uint64_t hash_of(size_t table, int64_t key);
  void insert(uint64_t hash, uint32_t slot);
  void erase(uint32_t slot);
  PendingGradient pending_of(uint32_t slot);
  // Estimated uses of keys that have no slot: never too low.
  uint8_t& counter(uint64_t hash, size_t row);
  uint32_t uses_outside(uint64_t hash);
  void note_outside(uint64_t hash);
  // The least used of some sampled rows that the batch does not need; kNone: it needs all of them.
  uint32_t victim();
  // Halves all frequencies.
  void decay();

  LineLayout layout_;
  size_t sum_offset_, facts_offset_, stride_, capacity_;
  AnonymousArray<std::byte> lines_;  // (capacity, stride)
  SlabMemory index_memory_;
  KeyIndex index_;           // of slots
  std::vector<Slot> slots_;  // (at most capacity)
  std::vector<uint32_t> free_;
  std::vector<std::vector<PendingGradient>> evicted_;  // (tables)
  std::vector<uint8_t> sketch_;                        // kSketchRows of a power of two
  uint64_t batch_ = 0;
  uint64_t since_decay_ = 0;
  uint64_t random_ = 1;
};

// What a table caches of other ranks' rows, and the updates that it counts for other ranks.
struct StaleState {
  StaleState(const LineLayout& layout, const StalenessOptions& options, int ranks)
      : kept(std::make_shared<ReplicaCache>(layout, options.replica_rows, 1)),
        counts(kept->capacity() * static_cast<size_t>(ranks - 1)) {}
  void clear() {
    kept->clear(number);
    counts.clear();
  }

  std::shared_ptr<ReplicaCache> kept;
  size_t number = 0;           // of the table there
  float learning_rate = 0.0f;  // of the last step of replicas; 0: use the options
  UpdateCounts counts;
};

// From now on, tables of a layer whose lines have one layout share one replica cache. Its capacity
// is the sum of theirs. Tables that keep replicas already stay as they are.
void keep_together(const std::vector<Table*>& tables);

}  // namespace hotrow
