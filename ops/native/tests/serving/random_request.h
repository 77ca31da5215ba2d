// Tables of all types, rows in them, and lookups with features of all kinds.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "core/serving/lookup.h"
#include "tests/serving/plain_lookup.h"
#include "tests/stored_rows.h"

namespace hotrow {

// Tables of all types; keys [0, kStored) of each are stored, and a few versions.
inline constexpr int64_t kStored = 600;

inline std::vector<StoredTable> all_tables() {
  return {stored_table("a", 16, StoredType::kFloat32, kStored),
          stored_table("b", 5, StoredType::kBfloat16, kStored),
          stored_table("c", 32, StoredType::kFloat16, kStored),
          stored_table("d", 12, StoredType::kInt8, kStored),
          stored_table("e", 32, StoredType::kBfloat16, kStored)};
}

inline std::shared_ptr<MemoryReader> stored(const std::vector<StoredTable>& tables) {
  auto reader = std::make_shared<MemoryReader>(tables);
  for (size_t t = 0; t < tables.size(); ++t) put_rows(*reader, t, 0, kStored, 1);
  return reader;
}

// A request with features of all kinds, and its outputs.
struct Request {
  Request(const std::vector<StoredTable>& tables, size_t samples, unsigned seed) : tables(tables) {
    std::mt19937_64 random(seed);
    const size_t count = 3 * tables.size();
    features.resize(count);
    keys.resize(count), splits.resize(count), weights.resize(count), outputs.resize(count);
    for (size_t f = 0; f < count; ++f) {
      ServingFeature& feature = features[f];
      feature.name = "f";
      feature.table = f % tables.size();
      Segments& segments = feature.segments;
      segments.combiner = static_cast<Combiner>(random() % 4);
      segments.samples = samples;
      splits[f].push_back(0);
      for (size_t b = 0; b < samples; ++b) {
        splits[f].push_back(splits[f].back() + static_cast<int64_t>(random() % 4));
      }
      const bool bags = segments.combiner != Combiner::kNone && random() % 3 != 0;
      segments.keys = bags ? static_cast<size_t>(splits[f].back()) : samples;
      if (bags) segments.row_splits = splits[f].data();
      for (size_t i = 0; i < segments.keys; ++i) {
        const uint64_t r = random();
        // Hot keys, other keys, and a few that are not in the store.
        keys[f].push_back(
            static_cast<int64_t>(r % 3 == 0 ? (r >> 8) % (kStored + 20) : (r >> 8) % 40));
        weights[f].push_back(static_cast<float>(r >> 60) / 8.0f);
      }
      if (bags && random() % 2 == 0) segments.weights = weights[f].data();
      feature.keys = keys[f].data();
      outputs[f].assign(segments.outputs() * tables[feature.table].width, -7.0f);
    }
  }

  LookupReport run(const ServingLookup& lookup, const Executor& executor = Executor(),
                   const Overlay& overlay = Overlay(), SampleCounts counts = {}) {
    std::vector<float*> out;
    for (std::vector<float>& output : outputs) out.push_back(output.data());
    return lookup.lookup(features.data(), features.size(), out.data(), never(), executor, counts,
                         overlay);
  }

  // The expected outputs, from plain_lookup of one table after the other.
  std::vector<std::vector<float>> expected(const RowReader& reader) const {
    std::vector<std::vector<float>> all;
    for (size_t f = 0; f < features.size(); ++f) {
      const ServingFeature& from = features[f];
      Feature feature;
      feature.keys = from.keys;
      feature.segments = from.segments;
      all.emplace_back(outputs[f].size());
      plain_lookup(reader, from.table, {feature}, {all.back().data()});
    }
    return all;
  }

  std::vector<StoredTable> tables;
  std::vector<ServingFeature> features;
  std::vector<std::vector<int64_t>> keys, splits;
  std::vector<std::vector<float>> weights, outputs;
};

inline std::shared_ptr<HotRows> cache_of(const std::vector<StoredTable>& tables, uint64_t rows,
                                         CachePolicy policy = CachePolicy::kLfu) {
  HotRowsOptions options;
  options.rows = rows;
  options.policy = policy;
  return std::make_shared<HotRows>(tables, options);
}

}  // namespace hotrow
