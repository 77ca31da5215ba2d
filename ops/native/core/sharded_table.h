// A table as the training ops see it: shards, the step, and the gradients of a step.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "core/dispatch.h"
#include "core/row_source.h"
#include "core/table.h"
#include "core/unique.h"

namespace hotrow {

// N shards in one process, reached through the dispatchers. Safe from several threads: reads
// share the lock, everything else takes it alone.
//
// Backward accumulates the gradient per unique key; commit applies the optimizer once (design
// D3). Every backward adds one to a witness that the optimizer of the dense part carries along;
// what comes back divided by what went in is the factor by which it averaged, scaled or clipped
// the gradients, and the rows' gradients are multiplied by it too.
class ShardedTable : public RowSource {
 public:
  // Backward passes without a commit before a lookup is refused: the optimizer does not apply
  // the anchor, and the table would never learn.
  static constexpr int64_t kMaxPending = 1024;

  ShardedTable(std::string name, const TableOptions& options, int32_t shards, bool hashed);

  const std::string& name() const { return name_; }
  size_t width() const override { return options_.width; }
  size_t line_width() const { return shards_[0].line_width(); }
  size_t size() const;
  size_t bytes() const;
  uint32_t step() const;
  void set_step(uint32_t step);

  // Distinct keys. Never inserts, counts or moves a clock.
  size_t read(const int64_t* keys, size_t count, float* rows) const override;
  // Distinct keys; an unknown one is inserted with its initial value.
  void find_or_insert(const int64_t* keys, size_t count, float* rows);

  // Adds the gradients (count, width) of distinct keys to those that wait for the commit.
  void accumulate(const int64_t* keys, size_t count, const float* gradients);
  // Accumulates and commits at once. Fails when the table was updated in this step already.
  void accumulate_and_commit(const int64_t* keys, size_t count, const float* gradients);
  // Ends the step. witness > 0: the optimizer took the gradients, and `witness` is what the sum
  // of ones of the backward passes became on its way; applies what waits. witness <= 0 or NaN:
  // nothing happens. Infinity: the optimizer does not tell, and the factor is 1.
  void commit(double witness);

  size_t shard_count() const { return shards_.size(); }
  size_t shard_size(size_t shard) const;
  void export_rows(size_t shard, size_t first, size_t count, int64_t* keys, float* lines,
                   uint32_t* clocks) const;
  void import_rows(const int64_t* keys, size_t count, const float* lines, const uint32_t* clocks);
  void digest(bool weights_only, uint64_t digest[2]) const;
  void clear();

 private:
  void check_keys(const int64_t* keys, size_t count) const;
  void apply(const int64_t* keys, size_t count, const float* gradients, float scale);

  std::string name_;
  TableOptions options_;
  bool hashed_;
  mutable std::shared_mutex mutex_;
  std::vector<Table> shards_;
  uint32_t step_ = 0;
  // The gradients of this step.
  KeyIndex waiting_;
  std::vector<int64_t> waiting_keys_;
  std::vector<float> waiting_gradients_;
  int64_t pending_ = 0;     // backward passes since the last commit
  bool committed_ = false;  // accumulate_and_commit ran in this step
};

}  // namespace hotrow
