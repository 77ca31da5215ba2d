#include "core/lookup.h"

#include <algorithm>

#include "core/unique.h"

namespace hotrow {
namespace {

// The keys of all features in one row, made distinct. The memory belongs to the thread.
struct Batch {
  Unique unique;
  std::vector<int64_t> all;
  std::vector<float> rows;  // (U, width)

  void gather(const std::vector<Feature>& features) {
    all.clear();
    for (const Feature& feature : features) {
      check_segments(feature.segments, feature.name);
      all.insert(all.end(), feature.keys, feature.keys + feature.segments.keys);
    }
    unique.run(all.data(), all.size());
  }
};

Batch& batch() {
  thread_local Batch b;
  return b;
}

void pool_all(const Batch& b, const std::vector<Feature>& features, size_t width,
              const std::vector<float*>& pooled) {
  const int32_t* position = b.unique.inverse().data();
  for (size_t f = 0; f < features.size(); ++f) {
    pool(features[f].segments, b.rows.data(), position, width, pooled[f]);
    position += features[f].segments.keys;
  }
}

}  // namespace

size_t lookup(const RowSource& source, const std::vector<Feature>& features,
              const std::vector<float*>& pooled) {
  Batch& b = batch();
  b.gather(features);
  b.rows.resize(b.unique.keys().size() * source.width());
  const size_t unknown = source.read(b.unique.keys().data(), b.unique.keys().size(), b.rows.data());
  pool_all(b, features, source.width(), pooled);
  return unknown;
}

void lookup_or_insert(ShardedTable& table, const std::vector<Feature>& features,
                      const std::vector<float*>& pooled) {
  Batch& b = batch();
  b.gather(features);
  b.rows.resize(b.unique.keys().size() * table.width());
  table.find_or_insert(b.unique.keys().data(), b.unique.keys().size(), b.rows.data());
  pool_all(b, features, table.width(), pooled);
}

void backward(ShardedTable& table, const std::vector<Feature>& features,
              const std::vector<const float*>& gradients, Backward what, size_t slot) {
  Batch& b = batch();
  b.gather(features);
  const size_t width = table.width();
  b.rows.assign(b.unique.keys().size() * width, 0.0f);
  const int32_t* position = b.unique.inverse().data();
  for (size_t f = 0; f < features.size(); ++f) {
    pool_gradient(features[f].segments, gradients[f], position, width, b.rows.data());
    position += features[f].segments.keys;
  }
  const int64_t* keys = b.unique.keys().data();
  const size_t count = b.unique.keys().size();
  switch (what) {
    case Backward::kAccumulate:
      return table.accumulate(slot, keys, count, b.rows.data());
    case Backward::kCommit:
      return table.accumulate_and_commit(slot, keys, count, b.rows.data());
    case Backward::kUpdate:
      return table.update(keys, count, b.rows.data());
  }
}

}  // namespace hotrow
