// The steps of training tables: forward, backward and commit of all tables of a layer in one call.
//
// Input dispatcher (distinct keys, grouped by owner) -> rows -> output dispatcher (back to the
// order of the keys, pooled), and the same way back for gradients, which are summed per distinct
// key in the order of the keys. F features, T tables, N keys, D width.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/executor.h"
#include "core/kernels/feature.h"
#include "core/table/table.h"

namespace hotrow {

// The features and tables of a layer's call.
struct LayerCall {
  std::vector<Table*> tables;     // (T), distinct
  std::vector<Feature> features;  // (F)
  std::vector<size_t> table_of;   // (F)
  Executor executor;

  std::vector<std::vector<size_t>> features_by_table() const;
};

// The outputs of a feature that one task pools.
constexpr size_t kPoolOutputs = 2048;

// A unique ticket of a forward pass.
int64_t next_ticket();

// A step of one process's rows; ranks/step.h also handles tables that are split over ranks.
//
// pooled[f]: (B_f, D), or (N_f, D) without a combiner; null: the feature's keys are only inserted.
// insert: unknown keys are counted and, when admitted, given a row; else nothing changes. Returns a
// ticket for backward; 0 without insert. missing (may be null): how many distinct keys read the
// default row.
int64_t forward_local(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                      size_t* missing);

// After forward_local that inserted: visit(table, lines) with the line of each key of the call's
// features of that table, by position, in the locks.
void read_lines(const LayerCall& call, int64_t ticket,
                const std::function<void(size_t, const std::byte* const*)>& visit);

// What happens to the gradients of a backward pass.
enum class Backward {
  kAccumulate,  // they wait in a slot until commit
  kCommit,      // the optimizer is applied at once; the following commit only checks
  kUpdate,      // the same outside of any step: no commit follows
};

struct BackwardOptions {
  Backward what = Backward::kAccumulate;
  size_t slot = 0;
  int64_t ticket = 0;                     // of the forward pass; 0: search again
  const float* learning_rates = nullptr;  // (T), or null: those of the options
  float global_clip_norm = 0.0f;          // 0: none
};

// gradients[f]: as pooled[f].
void backward_local(const LayerCall& call, const std::vector<const float*>& gradients,
                    const BackwardOptions& options);

// Ends a step or micro-step of all tables; see GradientPasses::end_step.
// learning_rates: (T), or null. global_clip_norm: the norm of the gradients of all tables
// together, after factors; larger ones are scaled down to it. 0: none.
void commit(const std::vector<Table*>& tables, const float* commit_token,
            const float* learning_rates, float global_clip_norm, const Executor& executor);

}  // namespace hotrow
