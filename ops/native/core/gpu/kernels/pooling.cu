#include <vector>

#include "core/gpu/kernels/block_pieces.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/divisors.h"
#include "core/gpu/kernels/pooling.h"
#include "core/gpu/kernels/rows.h"

namespace hotrow {
namespace {

// Outputs of a tile: for rows that are only copied, this many loads are in flight together.
constexpr uint32_t kTileOutputs = 4;
// Rows of a sample that are in flight together.
constexpr uint32_t kRowsAhead = 4;
constexpr uint32_t kTermLanes = 8;

// A feature for kernels.
struct Piece {
  const int64_t* row_splits;  // (B + 1), or null
  const float* weights;       // (N of the feature), or null
  const std::byte* default_line;
  float* pooled;
  const float* gradients;
  uint64_t first_key;
  uint32_t keys, outputs;
  uint32_t width, lanes;
  uint32_t first_block, outputs_a_block;
  uint32_t header;  // bytes before the weights of a line
  Combiner combiner;
  RowType type;
};
static_assert(sizeof(Piece) % 4 == 0);

struct Keys {
  const std::byte* const* lines;  // (U)
  const int32_t* inverse;         // (N)
};

__device__ bool plain(const Piece& p) {
  return p.combiner == Combiner::kNone || (p.row_splits == nullptr && p.weights == nullptr);
}

__device__ const std::byte* weights_of(const Piece& p, const Keys& keys, uint32_t i) {
  const std::byte* line = keys.lines[keys.inverse[p.first_key + i]];
  return (line == nullptr ? p.default_line : line) + p.header;
}

// The keys of sample b: [begin, end), inside the feature whatever row_splits contain.
__device__ void range_of(const Piece& p, uint32_t b, uint32_t& begin, uint32_t& end) {
  if (p.row_splits == nullptr) {
    begin = b;
    end = b + 1;
    return;
  }
  const auto cut = [&](int64_t split) {
    return split < 0 ? 0 : split > p.keys ? p.keys : static_cast<uint32_t>(split);
  };
  begin = cut(p.row_splits[b]);
  end = cut(p.row_splits[b + 1]);
  if (end < begin) end = begin;
}

// kColumns: 16 bytes of a row.
template <RowType kType, int kColumns>
__device__ void copy_rows(const Piece& p, const Keys& keys, const Tile& tile, uint32_t first,
                          uint32_t step) {
  const std::byte* rows[kTileOutputs];
#pragma unroll
  for (uint32_t r = 0; r < kTileOutputs; ++r) {
    const uint32_t b = first + r * step;
    rows[r] = b < p.outputs ? weights_of(p, keys, b) : nullptr;
  }
  for (uint32_t column = tile.lane * kColumns; column < p.width; column += tile.lanes * kColumns) {
    uint32_t words[kTileOutputs][4];
#pragma unroll
    for (uint32_t r = 0; r < kTileOutputs; ++r) {
      if (rows[r] != nullptr) load_words<kType, kColumns>(rows[r], column, p.width, words[r]);
    }
#pragma unroll
    for (uint32_t r = 0; r < kTileOutputs; ++r) {
      if (rows[r] == nullptr) continue;
      float values[kColumns];
      unpack<kType>(words[r], values);
      float* out = p.pooled + size_t{first + r * step} * p.width;
      store_floats<kColumns, true>(reinterpret_cast<std::byte*>(out), column, p.width, values);
    }
  }
}

// One sample. All lanes of the tile come here together.
template <RowType kType, int kColumns>
__device__ void pool_sample(const Piece& p, const Keys& keys, const Tile& tile, uint32_t b) {
  uint32_t begin, end;
  range_of(p, b, begin, end);
  const float divisor = divisor_of(p.combiner, p.weights, begin, end);
  float* out = p.pooled + size_t{b} * p.width;
  for (uint32_t start = 0; start < p.width; start += tile.lanes * kColumns) {
    const uint32_t column = start + tile.lane * kColumns;
    float sum[kColumns] = {};
    // Each lane finds one row; all of them read from all of those rows, in their order.
    for (uint32_t base = begin; base < end && divisor != 0.0f; base += tile.lanes) {
      const uint32_t own = base + tile.lane;
      const std::byte* row = own < end ? weights_of(p, keys, own) : nullptr;
      const float weight = own < end && p.weights != nullptr ? p.weights[own] : 1.0f;
      const uint32_t count = end - base < tile.lanes ? end - base : tile.lanes;
      for (uint32_t k = 0; k < count; k += kRowsAhead) {
        uint32_t words[kRowsAhead][4];
#pragma unroll
        for (uint32_t r = 0; r < kRowsAhead; ++r) {
          if (k + r >= count) continue;
          const std::byte* from = tile.from(row, k + r);
          load_words<kType, kColumns>(from, column, p.width, words[r]);
        }
#pragma unroll
        for (uint32_t r = 0; r < kRowsAhead; ++r) {
          if (k + r >= count) continue;
          const float factor = tile.from(weight, k + r);
          float values[kColumns];
          unpack<kType>(words[r], values);
#pragma unroll
          for (int c = 0; c < kColumns; ++c) sum[c] = sum[c] + factor * values[c];
        }
      }
    }
    if (divisor != 1.0f && divisor != 0.0f) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sum[c] = sum[c] / divisor;
    }
    store_floats<kColumns, true>(reinterpret_cast<std::byte*>(out), column, p.width, sum);
  }
}

template <RowType kType, int kColumns>
__device__ void pool_piece(const Piece& p, const Keys& keys, uint32_t block) {
  const Tile tile = tile_of(p.lanes);
  const uint32_t step = blockDim.x / p.lanes;
  const uint32_t first = block * p.outputs_a_block + threadIdx.x / p.lanes;
  if (plain(p)) {
    copy_rows<kType, kColumns>(p, keys, tile, first, step);
    return;
  }
  for (uint32_t r = 0; r < kTileOutputs; ++r) {
    const uint32_t b = first + r * step;
    if (b < p.outputs) pool_sample<kType, kColumns>(p, keys, tile, b);
  }
}

// The feature of this block, for all its threads.
__device__ void fetch_piece(const Piece* pieces, uint32_t count, Piece* piece) {
  const Piece& own = pieces[find_block(pieces, count)];
  constexpr uint32_t kSize = sizeof(Piece) / 4;
  static_assert(kSize <= kBlockThreads);
  if (threadIdx.x < kSize) {
    reinterpret_cast<uint32_t*>(piece)[threadIdx.x] =
        reinterpret_cast<const uint32_t*>(&own)[threadIdx.x];
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kBlockThreads, 3)
    pool_pieces(const Piece* pieces, uint32_t count, Keys keys, DeviceIf condition) {
  if (!holds(condition)) return;
  __shared__ Piece p;
  fetch_piece(pieces, count, &p);
  const uint32_t block = blockIdx.x - p.first_block;
  if (p.type == RowType::kFloat32) {
    pool_piece<RowType::kFloat32, 4>(p, keys, block);
  } else if (p.type == RowType::kBfloat16) {
    pool_piece<RowType::kBfloat16, 8>(p, keys, block);
  } else {
    pool_piece<RowType::kFloat16, 8>(p, keys, block);
  }
}

// KeyGradients::collect in kernels/key_gradients.cc. Tiles of kTermLanes lanes, a sample each.
__global__ void write_terms(const Piece* pieces, uint32_t count, DeviceTerms out) {
  __shared__ Piece p;
  fetch_piece(pieces, count, &p);
  const uint32_t b = (blockIdx.x - p.first_block) * p.outputs_a_block + threadIdx.x / kTermLanes;
  if (b >= p.outputs) return;
  const float* gradient = p.gradients + size_t{b} * p.width;
  uint32_t begin = b, end = b + 1;
  float divisor = 1.0f;
  const bool copied = plain(p);
  if (!copied) {
    range_of(p, b, begin, end);
    divisor = divisor_of(p.combiner, p.weights, begin, end);
  }
  for (uint32_t i = begin + threadIdx.x % kTermLanes; i < end; i += kTermLanes) {
    const uint64_t at = p.first_key + i;
    out.rows[at] = divisor == 0.0f ? nullptr : gradient;
    if (out.shares == nullptr) continue;
    float share = 1.0f;
    if (!copied) {
      const float weight = p.weights == nullptr ? 1.0f : p.weights[i];
      share = divisor == 0.0f ? 0.0f : weight / divisor;
    }
    out.shares[at] = share;
  }
}

// The features that have outputs.
DevicePieces describe(const DeviceFeature* features, size_t count, const float* const* gradients,
                      DeviceDescribed* to) {
  std::vector<Piece> pieces;
  uint64_t blocks = 0;
  for (size_t f = 0; f < count; ++f) {
    const DeviceFeature& feature = features[f];
    const Segments& s = feature.segments;
    if (s.outputs() == 0 || feature.width == 0) continue;
    if (gradients == nullptr && feature.pooled == nullptr) continue;
    Piece p = {};
    p.row_splits = s.row_splits;
    p.weights = s.weights;
    p.default_line = feature.default_line;
    p.pooled = feature.pooled;
    p.gradients = gradients == nullptr ? nullptr : gradients[f];
    p.first_key = feature.first_key;
    p.keys = static_cast<uint32_t>(s.keys);
    p.outputs = static_cast<uint32_t>(s.outputs());
    p.width = static_cast<uint32_t>(feature.width);
    p.lanes = lanes_for(feature.width, feature.weights == RowType::kFloat32 ? 4 : 8);
    p.outputs_a_block =
        gradients == nullptr ? kBlockThreads / p.lanes * kTileOutputs : kBlockThreads / kTermLanes;
    p.first_block = static_cast<uint32_t>(blocks);
    p.header = feature.bare ? 0 : sizeof(RowHeader);
    p.combiner = s.combiner;
    p.type = feature.weights;
    blocks += (p.outputs + p.outputs_a_block - 1) / p.outputs_a_block;
    pieces.push_back(p);
  }
  if (blocks > 0x7fffffffu) fail(Code::kInvalidArgument, "a batch too large for one launch");
  return {to->add(pieces), static_cast<uint32_t>(pieces.size()), static_cast<uint32_t>(blocks)};
}

// In scratch memory of device_pool_scratch, for one kernel.
template <typename Describe>
DevicePieces describe_now(void* scratch, size_t bytes, Describe&& describe, DeviceStream stream) {
  DeviceDescribed described(static_cast<std::byte*>(scratch), bytes);
  const DevicePieces pieces = describe(&described);
  described.upload(stream);
  return pieces;
}

}  // namespace

DeviceTerms DeviceTerms::take(DeviceArena& arena, size_t count, bool shares) {
  DeviceTerms out;
  out.rows = arena.take<const float*>(count);
  if (shares) out.shares = arena.take<float>(count);
  return out;
}

DevicePieces describe_pool(const DeviceFeature* features, size_t count, DeviceDescribed* to) {
  return describe(features, count, nullptr, to);
}

void device_pool(const DevicePieces& pieces, const std::byte* const* lines, const int32_t* inverse,
                 const DeviceIf& condition, DeviceStream stream) {
  if (pieces.blocks == 0) return;
  launch("pool", pool_pieces, pieces.blocks, kBlockThreads, stream,
         static_cast<const Piece*>(pieces.pieces), pieces.count, Keys{lines, inverse}, condition);
}

size_t device_pool_scratch(size_t features) {
  DeviceArena arena;
  arena.take<Piece>(features);
  return arena.used();
}

void device_pool(const DeviceFeature* features, size_t count, const std::byte* const* lines,
                 const int32_t* inverse, void* scratch, size_t bytes, DeviceStream stream) {
  const auto describe = [&](DeviceDescribed* to) { return describe_pool(features, count, to); };
  device_pool(describe_now(scratch, bytes, describe, stream), lines, inverse, {}, stream);
}

DevicePieces describe_terms(const DeviceFeature* features, const float* const* gradients,
                            size_t count, DeviceDescribed* to) {
  return describe(features, count, gradients, to);
}

void device_terms(const DevicePieces& pieces, const DeviceTerms& out, DeviceStream stream) {
  if (pieces.blocks == 0) return;
  launch("terms", write_terms, pieces.blocks, kBlockThreads, stream,
         static_cast<const Piece*>(pieces.pieces), pieces.count, out);
}

void device_terms(const DeviceFeature* features, const float* const* gradients, size_t count,
                  const DeviceTerms& out, void* scratch, size_t bytes, DeviceStream stream) {
  const auto describe = [&](DeviceDescribed* to) {
    return describe_terms(features, gradients, count, to);
  };
  device_terms(describe_now(scratch, bytes, describe, stream), out, stream);
}

}  // namespace hotrow
