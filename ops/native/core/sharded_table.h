// A table as the training ops see it: shards, the step, and the gradients of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/dispatch.h"
#include "core/row_source.h"
#include "core/table.h"
#include "core/unique.h"

namespace hotrow {

// N shards in one process, reached through the dispatchers. Safe from several threads: reads
// share the lock, everything else takes it alone.
//
// A backward pass leaves its gradients, summed per distinct key, in a slot; commit applies the
// optimizer once (design D3). The pass sends kUnit in its slot of a witness along with the dense
// gradients. What the optimizer or the loop does to gradients, any linear combination, it does to
// the witness too; what comes back, divided by kUnit, is the factor of that pass. A pass whose
// factor is 0 was not taken and waits; the oldest pass gives way when its slot is needed.
class ShardedTable : public RowSource {
 public:
  static constexpr size_t kSlots = 256;
  // Small, so that a norm over all gradients does not see the witness; a power of two, so that
  // factors are exact.
  static constexpr float kUnit = 0x1p-20f;
  // What the optimizer assigns when it leaves the anchor as it is: a micro-step.
  // Tiny, so that a small learning rate times kUnit still shows when it is subtracted; negative,
  // so that a gradient of 0 differs.
  static constexpr float kUnchanged = -0x1p-60f;
  // Backward passes without a commit before a lookup is refused: the optimizer does not apply
  // the anchor, and the table would never learn.
  static constexpr int64_t kMaxWaiting = 1024;

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

  // The slot of the next backward pass; tables of one layer use that of the first.
  size_t next_slot();
  // Leaves the gradients (count, width) of distinct keys in a slot.
  void accumulate(size_t slot, const int64_t* keys, size_t count, const float* gradients);
  // Applies the optimizer at once. Fails when the table was updated in this step already.
  void accumulate_and_commit(size_t slot, const int64_t* keys, size_t count,
                             const float* gradients);
  // Ends a step, or a micro-step of one. witness: (kSlots), what the optimizer assigned.
  // All kUnchanged: a micro-step; the passes since the last commit will be averaged.
  // All negative: a hand-written update subtracted something where it is not kUnchanged; the
  // factor is 1. Otherwise the factors times kUnit; 0 and what is not finite: not taken.
  void commit(const float* witness);
  // Applies the optimizer once to distinct keys, outside of any step.
  void update(const int64_t* keys, size_t count, const float* gradients);

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
  void forget_passes();

  std::string name_;
  TableOptions options_;
  bool hashed_;
  mutable std::shared_mutex mutex_;
  std::vector<Table> shards_;
  uint32_t step_ = 0;
  // The gradients of a backward pass.
  struct Pass {
    bool waiting = false;
    std::vector<int64_t> keys;
    std::vector<float> gradients;
  };
  std::vector<Pass> passes_;
  std::vector<std::pair<size_t, float>> taken_;  // slot and factor, in the order of passes
  KeyIndex sum_index_;
  std::vector<int64_t> sum_keys_;
  std::vector<float> sum_;
  size_t next_slot_ = 0;
  int64_t since_commit_ = 0;  // backward passes since the last commit
  int64_t micro_steps_ = 0;   // since the last commit
  // update in backward: the slot of the pass of this step, or kSlots.
  size_t committed_slot_ = kSlots;
};

}  // namespace hotrow
