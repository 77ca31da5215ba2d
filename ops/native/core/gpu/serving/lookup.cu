#include "core/gpu/kernels/divisors.h"
#include "core/gpu/kernels/rows.h"
#include "core/gpu/serving/lookup.h"
#include "core/gpu/serving/read_row.h"
#include "core/serving/device_rows.h"

namespace hotrow {
namespace {

constexpr uint32_t kLookupThreads = 128;
constexpr uint32_t kWarps = kLookupThreads / kWarp;
constexpr uint32_t kStagedWords = (sizeof(ServedHeader) + kMostServedWidth * sizeof(float)) / 16;

// A lane each.
static_assert(kMostDeviceLayers == kWarp);
struct Layers {
  const LayerKeys* all;
  uint32_t count;
};

// Whether a layer has the key. All lanes of the warp call it together.
__device__ bool in_layers(const Layers& layers, uint32_t table, int64_t key, uint32_t lane) {
  if (layers.count == 0) return false;
  bool is = false;
  if (lane < layers.count) {
    const LayerKeys keys = layers.all[lane];
    for (uint64_t at = LayerKeys::home(key, table) & keys.mask;; at = (at + 1) & keys.mask) {
      const LayerKeys::Slot slot = keys.slots[at];
      if (slot.table == 0) break;
      if (slot.key == key && slot.table == table + 1) {
        is = true;
        break;
      }
    }
  }
  return __any_sync(kAllLanes, is);
}

// decode_row in store/row_codec.cc, of one column.
__device__ float decoded(StoredType type, const std::byte* row, uint32_t column) {
  switch (type) {
    case StoredType::kFloat32:
      return reinterpret_cast<const float*>(row)[column];
    case StoredType::kBfloat16:
      return float_of_half<RowType::kBfloat16>(reinterpret_cast<const uint16_t*>(row)[column]);
    case StoredType::kFloat16:
      return float_of_half<RowType::kFloat16>(reinterpret_cast<const uint16_t*>(row)[column]);
    case StoredType::kInt8:
      return *reinterpret_cast<const float*>(row) *
             static_cast<float>(reinterpret_cast<const int8_t*>(row + sizeof(float))[column]);
  }
  return 0.0f;
}

// A warp an output. Lanes have columns of their own, so that sums keep the order of the keys.
__global__ void __launch_bounds__(kLookupThreads)
    look_up_served(const ServedFeature* features, uint32_t count, uint32_t outputs, Layers layers,
                   RowVersion newest, uint8_t now, uint64_t random, uint8_t* left) {
  __shared__ uint4 staged[kWarps][kStagedWords];
  const uint32_t lane = threadIdx.x % kWarp;
  uint4* const line = staged[threadIdx.x / kWarp];
  const auto* const header = reinterpret_cast<const ServedHeader*>(line);
  const auto* const row = reinterpret_cast<const std::byte*>(header + 1);
  for (size_t o = thread_index() / kWarp; o < outputs; o += thread_stride() / kWarp) {
    const ServedFeature& f =
        features[find_last(count, o, [&](unsigned i) { return features[i].first; })];
    const uint32_t b = static_cast<uint32_t>(o) - f.first;
    float* const out = f.outputs + size_t{b} * f.width;
    uint32_t begin = b, end = b + 1;
    float divisor = 1.0f;
    const bool plain =
        f.combiner == Combiner::kNone || (f.row_splits == nullptr && f.weights == nullptr);
    if (!plain) {
      if (f.row_splits != nullptr) {
        begin = static_cast<uint32_t>(f.row_splits[b]);
        end = static_cast<uint32_t>(f.row_splits[b + 1]);
      }
      divisor = divisor_of(f.combiner, f.weights, begin, end);
      for (uint32_t c = lane; c < f.width; c += kWarp) out[c] = 0.0f;
      if (divisor == 0.0f) continue;
    }
    bool whole = true;
    for (uint32_t i = begin; i < end && whole; ++i) {
      const int64_t key = f.keys[i];
      whole = !in_layers(layers, f.table_in_all, key, lane) &&
              read_served(f.cache, f.table, key, now, mix64(random + i), line, lane);
      __syncwarp();
      whole = whole && (newest == 0 || header->version <= newest);
      if (!whole) break;
      const float factor = f.weights == nullptr ? 1.0f : f.weights[i];
      for (uint32_t c = lane; c < f.width; c += kWarp) {
        const float value = decoded(f.type, row, c);
        out[c] = plain ? value : out[c] + factor * value;
      }
      __syncwarp();  // the next row comes to the same place
    }
    if (!whole) {
      if (lane == 0) left[o] = 1;
    } else if (divisor != 1.0f) {
      for (uint32_t c = lane; c < f.width; c += kWarp) out[c] = out[c] / divisor;
    }
    __syncwarp();
  }
}

// A warp a row. It reads pinned memory in place: a copy to the device first would be one more call.
__global__ void __launch_bounds__(kBlockThreads)
    write_left(const LeftRow* rows, uint32_t count, const float* floats) {
  const uint32_t lane = threadIdx.x % kWarp;
  for (size_t i = thread_index() / kWarp; i < count; i += thread_stride() / kWarp) {
    const LeftRow row = rows[i];
    for (uint64_t c = lane; c < row.width; c += kWarp) row.to[c] = floats[row.from + c];
  }
}

}  // namespace

void device_serving_lookup(const ServedFeature* features, size_t count, size_t outputs,
                           const LayerKeys* layers, size_t layer_count, RowVersion newest,
                           uint8_t now, uint64_t random, uint8_t* left, DeviceStream stream) {
  if (outputs == 0) return;
  launch("serving: lookup", look_up_served, blocks_for(outputs, kWarps), kLookupThreads, stream,
         features, static_cast<uint32_t>(count), static_cast<uint32_t>(outputs),
         Layers{layers, static_cast<uint32_t>(layer_count)}, newest, now, random, left);
}

void device_write_left(const LeftRow* rows, size_t count, const float* floats,
                       DeviceStream stream) {
  if (count == 0) return;
  launch("serving: left", write_left, blocks_for(count, kBlockThreads / kWarp), kBlockThreads,
         stream, rows, static_cast<uint32_t>(count), floats);
}

}  // namespace hotrow
