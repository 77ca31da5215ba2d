// Updates of rows whose columns lie at several ranks: the squares of a row's gradient are summed
// over all ranks first. The sibling of WholeSquares in table/due_gradients.cc.
#include <algorithm>

#include "core/gpu/comm/ranks.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/whole_rows.h"
#include "core/gpu/step/call.h"

namespace hotrow {

bool any_measures_together(const std::vector<Table*>& tables) {
  return std::any_of(tables.begin(), tables.end(),
                     [](const Table* table) { return table->measures_together(); });
}

void DeviceCall::measure_together(const DeviceBatch& batch, const DeviceDue& due,
                                  std::vector<DeviceStep>* steps) {
  const size_t tables = tables_.size();
  // All ranks have the same keys in the same order.
  const auto measured = [&](size_t t) {
    return tables_[t]->measures_together() && due.factors[t].has_value();
  };
  size_t rows = 0;
  for (size_t t = 0; t < tables; ++t) {
    if (measured(t)) rows += batch.distinct_first[t + 1] - batch.distinct_first[t];
  }
  float *clip = nullptr, *finished = nullptr;
  take_from(work_->squares, [&](DeviceArena& arena) {
    clip = arena.take<float>(rows);
    finished = arena.take<float>(rows);
    return 0;
  });
  const size_t bytes = device_measure_scratch(tables);
  void* const memory = scratch(bytes);
  const auto measure = [&](bool is_finished, float* squares) {
    std::vector<float*> outs(tables, nullptr);
    bool any = false;
    size_t first = 0;
    for (size_t t = 0; t < tables; ++t) {
      if (!measured(t)) continue;
      const Optimizer& optimizer = (*steps)[t].step.optimizer;
      if (is_finished ? optimizer.kind == OptimizerKind::kRowwiseAdagrad
                      : optimizer.clip_row_norm > 0.0f) {
        outs[t] = squares + first;
        any = true;
      }
      first += batch.distinct_first[t + 1] - batch.distinct_first[t];
    }
    if (!any) return;
    check(cudaMemsetAsync(squares, 0, rows * sizeof(float), stream_), "squares");
    device_measure(steps->data(), outs.data(), tables, is_finished, batch.unique.table_first,
                   batch.probed.lines, batch.count(), memory, bytes, stream_);
    Collectives& ranks = *tables_[0]->sharding().ranks;
    DeviceCommunicator& on_gpu = device_communicator_of(ranks, tiers_[0]->device());
    const std::string what = "squares of " + tables_[0]->name();
    ranks.run(what, [&](Communicator&) {
      on_gpu.begin(what);
      on_gpu.all_reduce(squares, rows, stream_);
    });
    ranks.when_done(
        ranks.submit("the arrival of " + what, [gpu = &on_gpu](Communicator&) { gpu->finish(); }),
        [](std::exception_ptr) {});
    for (size_t t = 0; t < tables; ++t) {
      if (outs[t] == nullptr) continue;
      ((*steps)[t].step.*
       (is_finished ? &UpdateStep::finished_squares : &UpdateStep::clip_squares)) = outs[t];
    }
  };
  measure(false, clip);
  measure(true, finished);
}

}  // namespace hotrow
