#include <vector>

#include "core/gpu/kernels/block_pieces.h"
#include "core/gpu/kernels/fingerprint.h"
#include "core/kernels/feature_fingerprint.h"

namespace hotrow {
namespace {

constexpr size_t kThreadValues = 8;
constexpr size_t kBlockValues = kThreadValues * kBlockThreads;

// An array of a feature.
struct Values {
  const void* at;
  uint64_t count;
  uint32_t feature;
  FeatureArray array;
  uint32_t first_block, unused;
};

__global__ void add_terms(const Values* arrays, uint32_t count, unsigned long long* sum) {
  const Values values = arrays[find_block(arrays, count)];
  const uint64_t begin = uint64_t{blockIdx.x - values.first_block} * kBlockValues;
  const uint64_t end = begin + kBlockValues < values.count ? begin + kBlockValues : values.count;
  unsigned long long own = 0;
  for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const uint64_t bits = values.array == FeatureArray::kWeights
                              ? static_cast<const uint32_t*>(values.at)[i]
                              : static_cast<const uint64_t*>(values.at)[i];
    own += fingerprint_term(bits, values.feature, values.array, i);
  }
  const Tile warp = tile_of(kWarp);
  for (unsigned half = kWarp / 2; half > 0; half /= 2) own += warp.from_xor(own, half);
  if (warp.lane == 0) atomicAdd(sum, own);
}

}  // namespace

size_t device_fingerprint_scratch(size_t features) {
  DeviceArena arena;
  arena.take<Values>(3 * features);
  return arena.used();
}

void device_fingerprint(const Feature* features, size_t count, uint64_t* out, void* scratch,
                        size_t bytes, DeviceStream stream) {
  check(cudaMemsetAsync(out, 0, sizeof(uint64_t), stream), "fingerprint");
  BlockNumbers blocks;
  std::vector<Values> arrays;
  const auto add = [&](size_t f, FeatureArray array, const void* at, size_t values) {
    if (values == 0) return;
    const uint64_t needed = (values + kBlockValues - 1) / kBlockValues;
    arrays.push_back({at, values, static_cast<uint32_t>(f), array, blocks.next(needed), 0});
  };
  for (size_t f = 0; f < count; ++f) {
    const Segments& s = features[f].segments;
    add(f, FeatureArray::kKeys, features[f].keys, s.keys);
    if (s.row_splits != nullptr) add(f, FeatureArray::kSplits, s.row_splits, s.samples + 1);
    if (s.weights != nullptr) add(f, FeatureArray::kWeights, s.weights, s.keys);
  }
  if (arrays.empty()) return;
  DeviceArena arena(scratch, bytes);
  Values* const there = arena.take<Values>(3 * count);
  upload(there, arrays.data(), arrays.size(), stream);
  launch("fingerprint", add_terms, blocks.count(), kBlockThreads, stream, there,
         static_cast<uint32_t>(arrays.size()), reinterpret_cast<unsigned long long*>(out));
}

}  // namespace hotrow
