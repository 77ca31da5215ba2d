// Lookup of all features of one table in a store: unique -> rows -> pool. The way of serving;
// `training.h` has that of training tables.
#pragma once

#include <cstdint>
#include <vector>

#include "core/pooling.h"
#include "core/row_reader.h"

namespace hotrow {

// A feature of a fused call: its keys (N) and how they make samples.
struct Feature {
  const char* name = "";
  const int64_t* keys = nullptr;
  Segments segments;
};

// pooled[f]: (B_f, width), or (N_f, width) without a combiner. Returns how many distinct keys
// were unknown and read the default row.
// table: its number. Fails with the code of the reader when a key could not be read.
size_t lookup(const RowReader& reader, size_t table, const std::vector<Feature>& features,
              const std::vector<float*>& pooled);

}  // namespace hotrow
