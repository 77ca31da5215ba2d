// Fused lookup and gradient of all features of one table: unique -> owner -> rows -> pool, and
// back. Training and serving both come through here (design D11).
#pragma once

#include <cstdint>
#include <vector>

#include "core/pooling.h"
#include "core/row_source.h"
#include "core/sharded_table.h"

namespace hotrow {

// A feature of a fused call: its keys (N) and how they make samples.
struct Feature {
  const char* name = "";
  const int64_t* keys = nullptr;
  Segments segments;
};

// pooled[f]: (B_f, width), or (N_f, width) without a combiner. Returns how many distinct keys
// were unknown and read the default row.
size_t lookup(const RowSource& source, const std::vector<Feature>& features,
              const std::vector<float*>& pooled);

// As lookup, but unknown keys are inserted.
void lookup_or_insert(ShardedTable& table, const std::vector<Feature>& features,
                      const std::vector<float*>& pooled);

// What becomes of the gradients of a backward pass.
enum class Backward { kAccumulate, kCommit, kUpdate };

// Sums gradients[f] (as pooled[f]) per distinct key and gives them to the table: accumulate or
// accumulate_and_commit in `slot`, or update.
void backward(ShardedTable& table, const std::vector<Feature>& features,
              const std::vector<const float*>& gradients, Backward what, size_t slot);

}  // namespace hotrow
