// The simplest lookup of one table: unique -> read -> decode -> pool.
#pragma once

#include <algorithm>
#include <vector>

#include "core/base/status.h"
#include "core/base/unique.h"
#include "core/kernels/feature.h"
#include "core/kernels/float_mode.h"
#include "core/store/row_reader.h"

namespace hotrow {

// pooled[f]: (B_f, width), or (N_f, width) without a combiner. Returns how many distinct keys
// were unknown and read the default row.
inline size_t plain_lookup(const RowReader& reader, size_t table,
                           const std::vector<Feature>& features,
                           const std::vector<float*>& pooled) {
  Unique unique;
  std::vector<int64_t> all;
  std::vector<std::byte> stored;  // (U, row bytes)
  std::vector<ReadState> states;  // (U)
  std::vector<float> rows;        // (U, width)
  const StoredTable& shape = reader.tables()[table];
  all.clear();
  for (const Feature& feature : features) {
    check_segments(feature.segments, feature.name);
    all.insert(all.end(), feature.keys, feature.keys + feature.segments.keys);
  }
  unique.run(all.data(), all.size());
  stored.resize(unique.size() * shape.row_bytes());
  states.resize(unique.size());
  rows.resize(unique.size() * shape.width);
  const ReadRequest request{table,         unique.keys(), unique.size(),
                            stored.data(), nullptr,       states.data()};
  const ReadFailure failure = reader.read(&request, 1, Deadline::max());
  if (failure.code != Code::kOk) fail(failure.code, "%s", failure.message.c_str());
  size_t unknown = 0;
  const IeeeFloatMode exact;
  for (size_t i = 0; i < unique.size(); ++i) {
    float* row = rows.data() + i * shape.width;
    if (states[i] == ReadState::kFound) {
      decode_row(shape.type, stored.data() + i * shape.row_bytes(), shape.width, row);
    } else {
      std::fill_n(row, shape.width, shape.default_value);
      ++unknown;
    }
  }
  const int32_t* position = unique.inverse();
  for (size_t f = 0; f < features.size(); ++f) {
    pool_rows(features[f].segments, rows.data(), position, shape.width, pooled[f]);
    position += features[f].segments.keys;
  }
  return unknown;
}

}  // namespace hotrow
