// Bounded staleness after HET (Miao et al., VLDB 2022): hot rows of other ranks that a rank keeps,
// and what their owners count of updates. docs/design/0009-ranks.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/anonymous_array.h"
#include "core/kernels.h"
#include "core/staleness.h"

namespace hotrow {

// What a rank did to a row that its owner does not know yet.
struct PendingGradient {
  int64_t key;
  uint32_t updates;             // steps
  uint32_t lookups;             // in them
  std::vector<float> gradient;  // (D) their sum
};

// Rows of other ranks, exactly so many at most. A row comes in when its key was used more often
// lately than that of the least used of some that are there (LFU with fading counts). Weights and
// state are float32 here whatever they are at the owner; the own updates are applied at once, so
// that a rank reads what it wrote, and summed until the owner is told. D width.
class KeptRows {
 public:
  static constexpr uint32_t kNone = 0xffffffffu;

  // layout: of the table.
  KeptRows(const LineLayout& layout, size_t rows);

  const LineLayout& layout() const { return layout_; }
  // Floats of state in a line.
  size_t state_floats() const { return layout_.vectors * layout_.width + layout_.scalars; }
  size_t size() const { return slot_of_.size(); }

  // A batch begins: slots that are found or taken from now on stay until the next one.
  void begin_batch();
  // The slot of a key's row, or kNone. Notes a use.
  uint32_t use(int64_t key);
  // A slot for a key that has none, if its row is worth keeping; else kNone. What is pending of the
  // row that was there is added to `evicted`.
  uint32_t take(int64_t key, std::vector<PendingGradient>* evicted);
  // The slot, or kNone, without a use.
  uint32_t find(int64_t key) const;

  std::byte* line(uint32_t slot) { return lines_.data() + size_t{slot} * stride_; }
  float* weights(uint32_t slot);  // (D)
  float* state(uint32_t slot);    // (state_floats)
  float* sum(uint32_t slot);      // (D) of gradients that the owner does not know
  struct Facts {
    uint32_t version;  // updates of the row at its owner when it came, and the own since
    uint32_t updates;  // own steps that the owner does not know
    uint32_t lookups;  // in them
    uint32_t filled;   // 0: the row has not come
  };
  Facts& facts(uint32_t slot);

  // Adds what is pending of all rows; they are as if it had been told.
  void push_all(std::vector<PendingGradient>* pending);
  void clear();

 private:
  static constexpr size_t kSketchRows = 4;

  PendingGradient pending_of(uint32_t slot);
  int64_t key(uint32_t slot) const {
    return reinterpret_cast<const RowHeader*>(lines_.data() + size_t{slot} * stride_)->key;
  }
  void pin(uint32_t slot);
  // Of keys that have no slot: at least their uses.
  uint8_t& counter(uint64_t hash, size_t row);
  uint32_t uses_outside(uint64_t hash);
  void note_outside(uint64_t hash);
  // The least used of some rows that the batch does not need; kNone: all that were looked at are.
  uint32_t victim();
  // Halves all frequencies.
  void fade();

  LineLayout layout_;
  size_t sum_offset_, facts_offset_, stride_, capacity_;
  AnonymousArray<std::byte> lines_;                // (capacity, stride)
  std::unordered_map<int64_t, uint32_t> slot_of_;  // by key
  std::vector<uint32_t> uses_;                     // (size) lately
  std::vector<uint8_t> is_pinned_;                 // (size)
  std::vector<uint32_t> pinned_;
  std::vector<uint8_t> sketch_;  // kSketchRows of a power of two
  uint64_t since_fade_ = 0;
  uint64_t random_ = 1;
};

// At the owner: updates of rows that some rank keeps.
class UpdateCounts {
 public:
  // From now on those of this key are counted. Returns how many there were.
  uint32_t watch(int64_t key);
  // Null: nobody keeps it.
  uint32_t* find(int64_t key);
  void clear();

 private:
  struct Entry {
    int64_t key;
    uint32_t updates;
    uint32_t used;
  };
  size_t place_of(int64_t key) const;
  std::vector<Entry> entries_;  // open addressing; a power of two
  size_t size_ = 0;
};

// Both, of a table.
struct StaleState {
  StaleState(const LineLayout& layout, const StalenessOptions& options)
      : kept(layout, options.kept_rows) {}
  void clear() {
    kept.clear();
    evicted.clear();
    counts.clear();
  }

  KeptRows kept;
  std::vector<PendingGradient> evicted;  // of rows that gave way; their owners do not know them yet
  float learning_rate = 0.0f;            // of the last step of kept rows; 0: the options' own
  UpdateCounts counts;
};

}  // namespace hotrow
