// A fingerprint of the values of a batch's features, the same on the CPU and on a GPU: the sum of a
// term for each value, in any order.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/hash.h"
#include "core/kernels/feature.h"

namespace hotrow {

enum class FeatureArray : uint32_t { kKeys = 0, kSplits = 1, kWeights = 2 };

// What is added for a value, by its bits, of an array of the f-th feature.
HOTROW_HD inline uint64_t fingerprint_term(uint64_t bits, uint32_t feature, FeatureArray array,
                                           uint64_t index) {
  const uint64_t place = uint64_t{feature} << 42 | uint64_t{static_cast<uint32_t>(array)} << 40;
  return combine64(place + index, bits);
}

// Of features in the host's memory.
inline uint64_t fingerprint_of(const std::vector<Feature>& features) {
  uint64_t sum = 0;
  for (uint32_t f = 0; f < features.size(); ++f) {
    const Segments& segments = features[f].segments;
    for (size_t i = 0; i < segments.keys; ++i) {
      const auto key = static_cast<uint64_t>(features[f].keys[i]);
      sum += fingerprint_term(key, f, FeatureArray::kKeys, i);
      if (segments.weights == nullptr) continue;
      uint32_t weight;
      std::memcpy(&weight, &segments.weights[i], sizeof(weight));
      sum += fingerprint_term(weight, f, FeatureArray::kWeights, i);
    }
    for (size_t b = 0; segments.row_splits != nullptr && b <= segments.samples; ++b) {
      const auto split = static_cast<uint64_t>(segments.row_splits[b]);
      sum += fingerprint_term(split, f, FeatureArray::kSplits, b);
    }
  }
  return sum;
}

}  // namespace hotrow
