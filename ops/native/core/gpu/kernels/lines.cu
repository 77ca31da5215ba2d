#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/lines.h"
#include "core/gpu/kernels/rows.h"

namespace hotrow {
namespace {

// Loads of a lane that are in flight together.
constexpr uint32_t kAhead = 4;

__device__ std::byte* row_of(const DeviceLines& lines, size_t i) {
  return lines.pointers != nullptr ? lines.pointers[i] : lines.base + i * lines.stride;
}

template <typename Word>
__device__ void copy_row(const std::byte* from, std::byte* to, uint32_t bytes, const Tile& tile) {
  const auto* const source = reinterpret_cast<const Word*>(from);
  auto* const target = reinterpret_cast<Word*>(to);
  const uint32_t words = bytes / sizeof(Word);
  for (uint32_t first = tile.lane; first < words; first += tile.lanes * kAhead) {
    Word held[kAhead];
#pragma unroll
    for (uint32_t r = 0; r < kAhead; ++r) {
      if (first + r * tile.lanes < words) held[r] = source[first + r * tile.lanes];
    }
#pragma unroll
    for (uint32_t r = 0; r < kAhead; ++r) {
      if (first + r * tile.lanes < words) target[first + r * tile.lanes] = held[r];
    }
  }
  const uint32_t rest = words * static_cast<uint32_t>(sizeof(Word));
  for (uint32_t b = rest + tile.lane * 4; b < bytes; b += tile.lanes * 4) {
    *reinterpret_cast<uint32_t*>(to + b) = *reinterpret_cast<const uint32_t*>(from + b);
  }
}

// `lanes` neighbouring lanes a row.
__global__ void __launch_bounds__(kBlockThreads)
    copy_lines(DeviceLines from, DeviceLines to, const uint32_t* count, uint32_t most,
               uint32_t row_bytes, uint32_t lanes) {
  const uint32_t rows = count == nullptr ? most : *count;
  const Tile tile = tile_of(lanes);
  for (size_t i = thread_index() / lanes; i < rows; i += thread_stride() / lanes) {
    const std::byte* const source = row_of(from, i);
    std::byte* const target = row_of(to, i);
    if (source == nullptr || target == nullptr) continue;
    if (aligned<16>(source) && aligned<16>(target)) {
      copy_row<uint4>(source, target, row_bytes, tile);
    } else if (aligned<8>(source) && aligned<8>(target)) {
      copy_row<uint2>(source, target, row_bytes, tile);
    } else {
      copy_row<uint32_t>(source, target, row_bytes, tile);
    }
  }
}

}  // namespace

void device_copy_lines(const DeviceLines& from, const DeviceLines& to, const uint32_t* count,
                       size_t most, size_t row_bytes, DeviceStream stream) {
  if (most == 0) return;
  const uint32_t lanes = lanes_for(row_bytes / 4, 4);
  launch("copy lines", copy_lines, blocks_for(most * lanes), kBlockThreads, stream, from, to, count,
         static_cast<uint32_t>(most), static_cast<uint32_t>(row_bytes), lanes);
}

}  // namespace hotrow
