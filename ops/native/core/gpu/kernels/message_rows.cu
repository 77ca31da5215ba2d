#include <limits>
#include <vector>

#include "core/gpu/kernels/block_pieces.h"
#include "core/gpu/kernels/message_rows.h"
#include "core/kernels/half.h"

namespace hotrow {
namespace {

constexpr size_t kBlockWords = 8 * kBlockThreads;

// For kernels. Blocks [first_block, that of the next piece) do a piece's work.
struct Copy {
  const uint32_t* from;
  uint32_t* to;
  uint64_t total;  // words
  uint32_t words, from_stride, to_stride;
  uint32_t first_block;
  uint32_t sums, unused;
};
struct Cut {
  const float* from;
  uint64_t rows;
  uint32_t width, first_block;
};
struct PartSum {
  float* out;
  uint64_t values;
  uint32_t first_block, unused;
};

// visit(i) for the part of this block among `total` values.
template <typename Visit>
__device__ void each_of_block(uint32_t first_block, uint64_t total, Visit&& visit) {
  const uint64_t begin = uint64_t{blockIdx.x - first_block} * kBlockWords;
  const uint64_t end = begin + kBlockWords < total ? begin + kBlockWords : total;
  for (uint64_t i = begin + threadIdx.x; i < end; i += blockDim.x) visit(i);
}

__global__ void copy_rows(const Copy* copies, uint32_t count) {
  const Copy copy = copies[find_block(copies, count)];
  each_of_block(copy.first_block, copy.total, [&](uint64_t i) {
    uint64_t row = 0;
    auto column = static_cast<uint32_t>(i);
    if (copy.total > copy.words) {
      row = i / copy.words;
      column = static_cast<uint32_t>(i - row * copy.words);
    }
    const uint32_t word = copy.from[row * copy.from_stride + column];
    copy.to[row * copy.to_stride + column] =
        copy.sums != 0 ? bits_of_float(0.0f + float_of_bits(word)) : word;
  });
}

// A warp a row. to: (cuts, ranks)
__global__ void cut_columns(const Cut* cuts, float* const* to, uint32_t count, uint32_t ranks) {
  constexpr uint32_t kWarps = kBlockThreads / kWarp;
  const uint32_t number = find_block(cuts, count);
  const Cut cut = cuts[number];
  const Tile warp = tile_of(kWarp);
  const uint64_t row = uint64_t{blockIdx.x - cut.first_block} * kWarps + threadIdx.x / kWarp;
  if (row >= cut.rows) return;
  const float* const from = cut.from + row * cut.width;
  bool finite = true;
  for (uint32_t column = warp.lane; column < cut.width; column += kWarp) {
    finite = finite && from[column] - from[column] == 0.0f;
  }
  finite = warp.all(finite);
  const uint32_t least_columns = cut.width / ranks, more = cut.width % ranks;
  for (uint32_t column = warp.lane; column < cut.width; column += kWarp) {
    uint32_t rank = column / (least_columns + 1), columns = least_columns + 1;
    uint32_t first = rank * columns;
    if (rank >= more) {
      first = more * (least_columns + 1);
      rank = (column - first) / least_columns;
      columns = least_columns;
      first += rank * columns;
      rank += more;
    }
    float value = from[column];
    if (!finite && column == first) value = float_of_bits(0x7fc00000u);
    to[size_t{number} * ranks + rank][row * columns + column - first] = value;
  }
}

// parts: (sums, ranks)
__global__ void add_parts(const PartSum* sums, const float* const* parts, uint32_t count,
                          uint32_t ranks) {
  const uint32_t number = find_block(sums, count);
  const float* const* const own = parts + size_t{number} * ranks;
  each_of_block(sums[number].first_block, sums[number].values, [&](uint64_t i) {
    float sum = own[0][i];
    for (uint32_t r = 1; r < ranks; ++r) sum = sum + own[r][i];
    sums[number].out[i] = sum;
  });
}

uint64_t blocks_of(uint64_t values) { return (values + kBlockWords - 1) / kBlockWords; }

uint32_t narrow(size_t value) {
  if (value > std::numeric_limits<uint32_t>::max()) {
    fail(Code::kInvalidArgument, "a row of %zu values in a message", value);
  }
  return static_cast<uint32_t>(value);
}

}  // namespace

size_t device_copy_rows_scratch(size_t copies) {
  DeviceArena arena;
  arena.take<Copy>(copies);
  return arena.used();
}

void device_copy_rows(const DeviceRowCopy* copies, size_t count, void* scratch, size_t bytes,
                      DeviceStream stream) {
  BlockNumbers blocks;
  std::vector<Copy> pieces;
  for (size_t i = 0; i < count; ++i) {
    const DeviceRowCopy& copy = copies[i];
    const uint64_t total = uint64_t{copy.rows} * copy.words;
    if (total == 0) continue;
    pieces.push_back({static_cast<const uint32_t*>(copy.from), static_cast<uint32_t*>(copy.to),
                      total, narrow(copy.words), narrow(copy.from_stride), narrow(copy.to_stride),
                      blocks.next(blocks_of(total)), copy.sums ? 1u : 0u, 0});
  }
  if (pieces.empty()) return;
  DeviceArena arena(scratch, bytes);
  Copy* const there = arena.take<Copy>(count);
  upload(there, pieces.data(), pieces.size(), stream);
  launch("messages: copy", copy_rows, blocks.count(), kBlockThreads, stream, there,
         static_cast<uint32_t>(pieces.size()));
}

size_t device_cut_columns_scratch(size_t cuts, size_t ranks) {
  DeviceArena arena;
  arena.take<Cut>(cuts);
  arena.take<float*>(cuts * ranks);
  return arena.used();
}

void device_cut_columns(const DeviceColumnCut* cuts, float* const* to, size_t count, size_t ranks,
                        void* scratch, size_t bytes, DeviceStream stream) {
  BlockNumbers blocks;
  std::vector<Cut> pieces;
  std::vector<float*> targets;
  for (size_t i = 0; i < count; ++i) {
    const DeviceColumnCut& cut = cuts[i];
    if (cut.rows == 0 || cut.width == 0) continue;
    constexpr size_t kWarps = kBlockThreads / kWarp;
    pieces.push_back(
        {cut.from, cut.rows, narrow(cut.width), blocks.next((cut.rows + kWarps - 1) / kWarps)});
    targets.insert(targets.end(), to + i * ranks, to + (i + 1) * ranks);
  }
  if (pieces.empty()) return;
  DeviceArena arena(scratch, bytes);
  Cut* const there = arena.take<Cut>(count);
  float** const targets_there = arena.take<float*>(count * ranks);
  upload(there, pieces.data(), pieces.size(), stream);
  upload(targets_there, targets.data(), targets.size(), stream);
  launch("messages: columns", cut_columns, blocks.count(), kBlockThreads, stream, there,
         targets_there, static_cast<uint32_t>(pieces.size()), static_cast<uint32_t>(ranks));
}

size_t device_add_parts_scratch(size_t sums, size_t ranks) {
  DeviceArena arena;
  arena.take<PartSum>(sums);
  arena.take<const float*>(sums * ranks);
  return arena.used();
}

void device_add_parts(const DevicePartSum* sums, const float* const* parts, size_t count,
                      size_t ranks, void* scratch, size_t bytes, DeviceStream stream) {
  BlockNumbers blocks;
  std::vector<PartSum> pieces;
  std::vector<const float*> addends;
  for (size_t i = 0; i < count; ++i) {
    if (sums[i].values == 0) continue;
    pieces.push_back({sums[i].out, sums[i].values, blocks.next(blocks_of(sums[i].values)), 0});
    addends.insert(addends.end(), parts + i * ranks, parts + (i + 1) * ranks);
  }
  if (pieces.empty()) return;
  DeviceArena arena(scratch, bytes);
  PartSum* const there = arena.take<PartSum>(count);
  const float** const addends_there = arena.take<const float*>(count * ranks);
  upload(there, pieces.data(), pieces.size(), stream);
  upload(addends_there, addends.data(), addends.size(), stream);
  launch("messages: parts", add_parts, blocks.count(), kBlockThreads, stream, there, addends_there,
         static_cast<uint32_t>(pieces.size()), static_cast<uint32_t>(ranks));
}

}  // namespace hotrow
