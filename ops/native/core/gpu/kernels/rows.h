// Values of rows in kernels: read as float32 and rounded back, kCount neighbours at a time. One
// access of 16 bytes (8 for 4 halves) where the address allows it, else one value after the other.
// Siblings: kernels/values.h, kernels/half.h.
#pragma once

#include "core/gpu/kernels/device_code.h"
#include "core/kernels/half.h"
#include "core/kernels/row_line.h"

namespace hotrow {

template <size_t kBytes>
__device__ inline bool aligned(const void* at) {
  return reinterpret_cast<uintptr_t>(at) % kBytes == 0;
}

// Rows of 16-bit weights and an odd width have float32 state at even addresses only.
__device__ inline float load_float(const std::byte* at) {
  if (aligned<4>(at)) return *reinterpret_cast<const float*>(at);
  const auto* halves = reinterpret_cast<const uint16_t*>(at);
  return float_of_bits(halves[0] | static_cast<uint32_t>(halves[1]) << 16);
}
__device__ inline void store_float(std::byte* at, float value) {
  if (aligned<4>(at)) {
    *reinterpret_cast<float*>(at) = value;
    return;
  }
  auto* halves = reinterpret_cast<uint16_t*>(at);
  halves[0] = static_cast<uint16_t>(bits_of_float(value));
  halves[1] = static_cast<uint16_t>(bits_of_float(value) >> 16);
}

// Values of rows that kernels load and store; the emulator counts their bytes.
__device__ inline void count_loaded([[maybe_unused]] size_t bytes) {
#if defined(HOTROW_SIMT)
  simt::count_row_bytes(bytes, 0);
#endif
}
__device__ inline void count_stored([[maybe_unused]] size_t bytes) {
#if defined(HOTROW_SIMT)
  simt::count_row_bytes(0, bytes);
#endif
}
// How many of `count` values from a column on are in a row.
__device__ inline uint32_t values_in(uint32_t column, uint32_t width, uint32_t count) {
  return column >= width ? 0 : least(width - column, count);
}

// A value that is not loaded again, so caches need not keep it.
__device__ inline float load_once(const float* at) {
  count_loaded(sizeof(float));
  return load_streaming(at);
}

template <RowType kType>
__device__ inline float float_of_half(uint32_t half) {
  const auto bits = static_cast<uint16_t>(half);
  return kType == RowType::kBfloat16 ? float_of_bfloat16(bits) : float_of_float16(bits);
}

// The 4-byte words of kCount values.
template <RowType kType, int kCount>
constexpr int kWords = kCount * (kType == RowType::kFloat32 ? 4 : 2) / 4;

// Values column, column + 1, ... as they lie in memory; 0 past the width. values: the first of the
// row. once: they are not loaded again, so caches need not keep them.
template <RowType kType, int kCount>
__device__ inline void load_words(const std::byte* values, uint32_t column, uint32_t width,
                                  uint32_t (&words)[kWords<kType, kCount>], bool once = false) {
  constexpr int kSize = kWords<kType, kCount>;
  static_assert(kSize == 2 || kSize == 4);
  count_loaded(values_in(column, width, kCount) * bytes_of(kType));
  const std::byte* at = values + size_t{column} * bytes_of(kType);
  if (column + kCount <= width && aligned<kSize * 4>(at)) {
    if constexpr (kSize == 4) {
      const auto* const from = reinterpret_cast<const uint4*>(at);
      const uint4 four = once ? load_streaming(from) : *from;
      words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    } else {
      const uint2 two = *reinterpret_cast<const uint2*>(at);
      words[0] = two.x, words[1] = two.y;
    }
    return;
  }
  if constexpr (kType == RowType::kFloat32) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      words[k] = column + k < width ? bits_of_float(load_float(at + k * 4)) : 0;
    }
  } else {
    const auto* halves = reinterpret_cast<const uint16_t*>(at);
#pragma unroll
    for (int k = 0; k < kCount; k += 2) {
      const uint32_t low = column + k < width ? halves[k] : 0;
      const uint32_t high = column + k + 1 < width ? halves[k + 1] : 0;
      words[k / 2] = low | high << 16;
    }
  }
}

template <RowType kType, int kCount>
__device__ inline void unpack(const uint32_t (&words)[kWords<kType, kCount>],
                              float (&out)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    if constexpr (kType == RowType::kFloat32) {
      out[k] = float_of_bits(words[k]);
    } else {
      out[k] = float_of_half<kType>(k % 2 == 0 ? words[k / 2] & 0xffffu : words[k / 2] >> 16);
    }
  }
}

template <RowType kType, int kCount>
__device__ inline void load_values(const std::byte* values, uint32_t column, uint32_t width,
                                   float (&out)[kCount]) {
  uint32_t words[kWords<kType, kCount>];
  load_words<kType, kCount>(values, column, width, words);
  unpack<kType, kCount>(words, out);
}

// The opposite, for float32; nothing is written past the width. kOnce: kernels do not load them
// again, so caches need not keep them.
template <int kCount, bool kOnce = false>
__device__ inline void store_floats(std::byte* values, uint32_t column, uint32_t width,
                                    const float (&from)[kCount]) {
  count_stored(values_in(column, width, kCount) * 4);
  std::byte* at = values + size_t{column} * 4;
  if (column + kCount <= width && aligned<16>(at)) {
#pragma unroll
    for (int k = 0; k < kCount; k += 4) {
      auto* const to = reinterpret_cast<float4*>(at + k * 4);
      const float4 four = make_float4(from[k], from[k + 1], from[k + 2], from[k + 3]);
      if constexpr (kOnce) {
        store_streaming(to, four);
      } else {
        *to = four;
      }
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    if (column + k < width) store_float(at + k * 4, from[k]);
  }
}

// For 16-bit values, rounded stochastically. position: of the row's first value in its line.
template <RowType kType>
__device__ inline void store_halves(std::byte* values, uint32_t column, uint32_t width,
                                    const float (&from)[4], uint64_t stream, uint32_t position) {
  count_stored(values_in(column, width, 4) * 2);
  uint32_t halves[4];
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k) {
    const uint32_t random = rounding_bits(stream, position + column + k);
    halves[k] = kType == RowType::kBfloat16 ? bfloat16_stochastic(from[k], random)
                                            : float16_stochastic(from[k], random);
  }
  std::byte* at = values + size_t{column} * 2;
  if (column + 4 <= width && aligned<8>(at)) {
    uint2 two;
    two.x = halves[0] | halves[1] << 16;
    two.y = halves[2] | halves[3] << 16;
    *reinterpret_cast<uint2*>(at) = two;
    return;
  }
#pragma unroll
  for (uint32_t k = 0; k < 4; ++k) {
    if (column + k < width) reinterpret_cast<uint16_t*>(at)[k] = static_cast<uint16_t>(halves[k]);
  }
}

// The same with a type that is known at run time.
__device__ inline void load_quad(RowType type, const std::byte* values, uint32_t column,
                                 uint32_t width, float (&out)[4]) {
  if (type == RowType::kFloat32) {
    load_values<RowType::kFloat32, 4>(values, column, width, out);
  } else if (type == RowType::kBfloat16) {
    load_values<RowType::kBfloat16, 4>(values, column, width, out);
  } else {
    load_values<RowType::kFloat16, 4>(values, column, width, out);
  }
}
__device__ inline void store_quad(RowType type, std::byte* values, uint32_t column, uint32_t width,
                                  const float (&from)[4], uint64_t stream, uint32_t position) {
  if (type == RowType::kFloat32) {
    store_floats<4>(values, column, width, from);
  } else if (type == RowType::kBfloat16) {
    store_halves<RowType::kBfloat16>(values, column, width, from, stream, position);
  } else {
    store_halves<RowType::kFloat16>(values, column, width, from, stream, position);
  }
}

// Lanes that share a row: a power of two, 4 to 32, for `columns` columns each at a time.
inline uint32_t lanes_for(size_t width, size_t columns) {
  uint32_t lanes = 4;
  while (lanes < kWarp && lanes * columns < width) lanes *= 2;
  return lanes;
}

}  // namespace hotrow
