// Bounded staleness after HET (Miao et al., VLDB 2022): hot rows of other ranks that a rank keeps,
// and what their owners count of updates. docs/design/0009-ranks.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/kernels.h"
#include "core/row_cache.h"
#include "core/staleness.h"

namespace hotrow {

// What a rank did to a row that its owner does not know yet.
struct PendingGradient {
  int64_t key;
  uint32_t updates;             // steps
  uint32_t lookups;             // in them
  std::vector<float> gradient;  // (D) their sum
};

// Rows of other ranks, LFU. Weights and state are float32 here whatever they are at the owner; the
// own updates are applied at once, so that a rank reads what it wrote, and summed until the owner
// is told. D width.
class KeptRows {
 public:
  static constexpr uint32_t kNone = RowCache::kNone;

  // layout: of the table.
  KeptRows(const LineLayout& layout, size_t rows);

  const LineLayout& layout() const { return layout_; }
  // Floats of state in a line.
  size_t state_floats() const { return layout_.vectors * layout_.width + layout_.scalars; }
  size_t slots() const { return cache_.slots(); }

  // A batch begins: slots that are found or taken from now on stay until the next one.
  void begin_batch();
  // The slot of a key's row, or kNone. Notes a use.
  uint32_t use(int64_t key);
  // A slot for a key that has none, if its row is worth keeping; else kNone. What is pending of the
  // row that was there is added to `evicted`.
  uint32_t take(int64_t key, std::vector<PendingGradient>* evicted);
  // The slot, or kNone, without a use.
  uint32_t find(int64_t key) const;

  std::byte* line(uint32_t slot) { return cache_.line(slot); }
  float* weights(uint32_t slot);  // (D)
  float* state(uint32_t slot);    // (state_floats)
  float* sum(uint32_t slot);      // (D) of gradients that the owner does not know
  struct Facts {
    uint32_t version;  // updates of the row at its owner when it came, and the own since
    uint32_t updates;  // own steps that the owner does not know
    uint32_t lookups;  // in them
    uint32_t unused;
  };
  Facts& facts(uint32_t slot);

  // Adds what is pending of all rows; they are as if it had been told.
  void push_all(std::vector<PendingGradient>* pending);
  void clear();

 private:
  PendingGradient pending_of(uint32_t slot);

  LineLayout layout_;
  size_t sum_offset_, facts_offset_;
  RowCache cache_;
  std::vector<uint32_t> pinned_;
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
  KeptRows kept;
  UpdateCounts counts;
};

}  // namespace hotrow
