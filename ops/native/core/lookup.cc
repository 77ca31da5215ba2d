#include "core/lookup.h"

#include "core/float_mode.h"
#include "core/unique.h"

namespace hotrow {

size_t lookup(const RowSource& source, const std::vector<Feature>& features,
              const std::vector<float*>& pooled) {
  thread_local Unique unique;
  thread_local std::vector<int64_t> all;
  thread_local std::vector<float> rows;  // (U, width)
  all.clear();
  for (const Feature& feature : features) {
    check_segments(feature.segments, feature.name);
    all.insert(all.end(), feature.keys, feature.keys + feature.segments.keys);
  }
  unique.run(all.data(), all.size());
  rows.resize(unique.size() * source.width());
  const size_t unknown = source.read(unique.keys(), unique.size(), rows.data());
  const int32_t* position = unique.inverse();
  const IeeeFloatMode exact;
  for (size_t f = 0; f < features.size(); ++f) {
    pool_rows(features[f].segments, rows.data(), position, source.width(), pooled[f]);
    position += features[f].segments.keys;
  }
  return unknown;
}

}  // namespace hotrow
