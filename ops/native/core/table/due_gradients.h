// Gradients of distinct keys that are due: from one pass, or from several that a commit took. They
// are clipped by the norm of all tables and applied to rows. The caller holds the tables' locks. U
// distinct keys of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/executor.h"
#include "core/kernels/kernels.h"
#include "core/table/table.h"
#include "core/table/table_changes.h"

namespace hotrow {

// The gradients of a table.
struct Due {
  Table* table;
  size_t number;  // the table's number in the call
  const SummedGradients* sums;
  float factor;
};

// Finds lines and places again when rows were removed since. A key that was not admitted when its
// gradient was computed stays without a line, and its gradient is dropped.
void refresh(Table& table, SummedGradients* sums);
// Sums several passes, in their order, into one.
std::unique_ptr<SummedGradients> merge(const Table& table, const GradientPasses::Taken& taken);
// Clips gradients by the norm of all of them, then applies them and removes rows that expired.
// learning_rates: of all tables of the call; null uses the rates of their options. Takes all memory
// before it updates the first row; then it calls changes->keep.
void apply(std::vector<Due>* dues, const float* learning_rates, float global_clip_norm,
           const Executor& executor, TableChanges* changes);

// Rows [first, last) of an update, which belong to the calling thread.
struct RowsToUpdate {
  const int64_t* keys;
  const uint32_t* places;
  const uint32_t* counts;
  std::byte* const* lines;
  size_t first, last;
};
// Before the first update of a step: copies the rows that an open snapshot reads later.
void watch_rows(Table& table, const RowsToUpdate& rows);
// Applies the optimizer. It does not fail.
void update_rows(Table& table, const UpdateStep& step, const RowGradients& gradients,
                 const RowsToUpdate& rows);
// The learning rate of a table of the call; NaN: use its options' rate.
float rate_of(const float* learning_rates, size_t table);
// Before the updates: finds rows that may expire with the next step.
void prepare_sweeps(const std::vector<Table*>& tables, const Executor& executor);
// After the updates: removes rows that expired.
void sweep_all(const std::vector<Table*>& tables, const Executor& executor);

}  // namespace hotrow
