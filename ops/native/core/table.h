// One shard of an embedding table: keys, row lines, clocks.
#pragma once

#include <cstdint>
#include <vector>

#include "core/key_index.h"
#include "core/optimizer.h"
#include "core/row_arena.h"
#include "core/row_init.h"

namespace hotrow {

struct TableOptions {
  size_t width = 0;              // D: weights of a row
  int64_t vocabulary_size = -1;  // keys in [0, vocabulary_size); -1: every key
  float default_value = 0.0f;    // of the row that an unknown key reads
  RowInit init;
  Optimizer optimizer;
};

// Not synchronized: ShardedTable holds the lock.
class Table {
 public:
  explicit Table(const TableOptions& options);

  size_t size() const { return index_.size(); }
  size_t line_width() const { return line_width_; }  // D + S
  size_t bytes() const;

  // weights: (count, D); an unknown key gets the default row. Returns the number of unknown keys.
  size_t find(const int64_t* keys, size_t count, float* weights) const;
  // As find, but an unknown key is given an initialized line. Keys may repeat.
  void find_or_insert(const int64_t* keys, size_t count, float* weights);
  // Applies the optimizer to each key's line once and sets its clock; unknown keys are inserted.
  // keys: (count), distinct; gradients: (count, D), times scale.
  void update(const int64_t* keys, size_t count, const float* gradients, float scale,
              uint32_t clock);

  // Copies the lines of rows [first, first + count) in the order of insertion.
  // keys: (count), lines: (count, D + S), clocks: (count); each may be null.
  void export_rows(size_t first, size_t count, int64_t* keys, float* lines, uint32_t* clocks) const;
  // Writes lines; an existing key's line is replaced.
  void import_rows(const int64_t* keys, size_t count, const float* lines, const uint32_t* clocks);
  // Adds the multiset hash of (key, line) to digest[2]: it does not depend on the order of rows.
  void add_digest(bool weights_only, uint64_t digest[2]) const;
  void clear();

 private:
  size_t insert(int64_t key);

  TableOptions options_;
  size_t line_width_;
  KeyIndex index_;
  RowArena lines_;
  std::vector<int64_t> keys_;     // by row
  std::vector<uint32_t> clocks_;  // by row
};

}  // namespace hotrow
