// Weights and state of a line, read as float32 and rounded back, 16 at a time: kernels/half.h with
// the lanes of kernels/lanes.h.
#pragma once

#include "core/kernels/lanes.h"
#include "core/kernels/row_line.h"

namespace hotrow {
namespace HOTROW_ISA {
namespace {

HOTROW_INLINE Floats floats_of_bfloat16(const Words& halves) {
  return floats_of_bits(halves << 16);
}

HOTROW_INLINE Floats floats_of_float16(const Words& halves) {
  const Words sign = (halves & all_words(0x8000u)) << 16, magnitude = halves & all_words(0x7fffu);
  Words bits = (magnitude << 13) + all_words(112u << 23);
  bits = select_less(magnitude, all_words(0x0400u), bits_of(floats_of(magnitude) * all(0x1p-24f)),
                     bits);
  const Words special = (magnitude << 13) | all_words(0x7f800000u);
  bits = select_less(magnitude, all_words(0x7c00u), bits, special);
  bits = select_less(all_words(0x7c00u), magnitude, bits | all_words(0x00400000u), bits);
  return floats_of_bits(sign | bits);
}

HOTROW_INLINE Words bfloat16_with_step(const Words& bits, const Words& step) {
  const Words sign = (bits >> 16) & all_words(0x8000u), magnitude = bits & all_words(0x7fffffffu);
  Words half = (magnitude + step) >> 16;
  half = select_less(half, all_words(0x7f7fu), half, all_words(0x7f7fu));
  half = select_less(magnitude, all_words(0x7f800000u), half, magnitude >> 16);
  half = select_less(all_words(0x7f800000u), magnitude, half | all_words(0x40u), half);
  return sign | half;
}

HOTROW_INLINE Words bfloat16_nearest(const Floats& values) {
  const Words bits = bits_of(values);
  return bfloat16_with_step(bits, all_words(0x7fffu) + ((bits >> 16) & all_words(1u)));
}

HOTROW_INLINE Words bfloat16_stochastic(const Floats& values, const Words& random) {
  return bfloat16_with_step(bits_of(values), random >> 16);
}

HOTROW_INLINE Words float16_with_step(const Words& bits, const Words& step,
                                      const Words& subnormal) {
  const Words sign = (bits >> 16) & all_words(0x8000u), magnitude = bits & all_words(0x7fffffffu);
  Words half = (magnitude - all_words(112u << 23) + step) >> 13;
  half = select_less(half, all_words(0x7bffu), half, all_words(0x7bffu));
  half = select_less(magnitude, all_words(113u << 23), subnormal, half);
  half = select_less(magnitude, all_words(0x7f800000u), half, all_words(0x7c00u));
  const Words nan = all_words(0x7e00u) | ((magnitude >> 13) & all_words(0x03ffu));
  half = select_less(all_words(0x7f800000u), magnitude, nan, half);
  return sign | half;
}

HOTROW_INLINE Floats float16_subnormal_part(const Words& bits) {
  const Words magnitude = bits & all_words(0x7fffffffu);
  return floats_of_bits(select_less(magnitude, all_words(113u << 23), magnitude, all_words(0)));
}

HOTROW_INLINE Words float16_nearest(const Floats& values) {
  const Words bits = bits_of(values);
  const Floats subnormal = float16_subnormal_part(bits) * all(0x1p24f) + all(0x1p23f);
  return float16_with_step(bits, all_words(0x0fffu) + ((bits >> 13) & all_words(1u)),
                           bits_of(subnormal) & all_words(0x7fffu));
}

HOTROW_INLINE Words float16_stochastic(const Floats& values, const Words& random) {
  const Words bits = bits_of(values);
  const Words subnormal = integers_of(float16_subnormal_part(bits) * all(0x1p45f));
  return float16_with_step(bits, random >> 19, (subnormal + (random >> 11)) >> 21);
}

// hotrow::rounding_bits of 16 positions.
HOTROW_INLINE Words rounding_words(uint64_t stream, uint32_t position) {
  Words x = (all_words(position) + numbers()) * all_words(0x9e3779b9u) +
            all_words(static_cast<uint32_t>(stream));
  x = x ^ all_words(static_cast<uint32_t>(stream >> 32));
  x = (x ^ (x >> 16)) * all_words(0x7feb352du);
  x = (x ^ (x >> 15)) * all_words(0x846ca68bu);
  return x ^ (x >> 16);
}

template <RowType kType, class Extent>
HOTROW_INLINE Floats load_values(const std::byte* values, size_t column, Extent extent) {
  if constexpr (kType == RowType::kFloat32) {
    return load(reinterpret_cast<const float*>(values) + column, extent);
  } else {
    const Words halves = load_halves(reinterpret_cast<const uint16_t*>(values) + column, extent);
    return kType == RowType::kBfloat16 ? floats_of_bfloat16(halves) : floats_of_float16(halves);
  }
}

// Rounds to nearest even.
template <RowType kType, class Extent>
HOTROW_INLINE void store_nearest(std::byte* values, size_t column, const Floats& a, Extent extent) {
  if constexpr (kType == RowType::kFloat32) {
    store(reinterpret_cast<float*>(values) + column, a, extent);
  } else {
    store_halves(reinterpret_cast<uint16_t*>(values) + column,
                 kType == RowType::kBfloat16 ? bfloat16_nearest(a) : float16_nearest(a), extent);
  }
}

// Rounds stochastically. position: of the first value, in the line.
template <RowType kType, class Extent>
HOTROW_INLINE void store_stochastic(std::byte* values, size_t column, const Floats& a,
                                    Extent extent, uint64_t stream, size_t position) {
  if constexpr (kType == RowType::kFloat32) {
    store(reinterpret_cast<float*>(values) + column, a, extent);
  } else {
    const Words random = rounding_words(stream, static_cast<uint32_t>(position));
    store_halves(reinterpret_cast<uint16_t*>(values) + column,
                 kType == RowType::kBfloat16 ? bfloat16_stochastic(a, random)
                                             : float16_stochastic(a, random),
                 extent);
  }
}

// The same for a type that is known at run time. Functions that are compiled once convert 16-bit
// values: only float32 is inlined, so that one kernel serves every type.
template <class Extent>
__attribute__((noinline)) Floats load_halves_as_floats(RowType type, const std::byte* values,
                                                       size_t column, Extent extent) {
  return type == RowType::kBfloat16 ? load_values<RowType::kBfloat16>(values, column, extent)
                                    : load_values<RowType::kFloat16>(values, column, extent);
}
template <class Extent>
__attribute__((noinline)) void store_halves_stochastic(RowType type, std::byte* values,
                                                       size_t column, const Floats& a,
                                                       Extent extent, uint64_t stream,
                                                       size_t position) {
  if (type == RowType::kBfloat16) {
    store_stochastic<RowType::kBfloat16>(values, column, a, extent, stream, position);
  } else {
    store_stochastic<RowType::kFloat16>(values, column, a, extent, stream, position);
  }
}
template <class Extent>
HOTROW_INLINE Floats load_values(RowType type, const std::byte* values, size_t column,
                                 Extent extent) {
  if (type == RowType::kFloat32) return load_values<RowType::kFloat32>(values, column, extent);
  return load_halves_as_floats(type, values, column, extent);
}
template <class Extent>
HOTROW_INLINE void store_stochastic(RowType type, std::byte* values, size_t column, const Floats& a,
                                    Extent extent, uint64_t stream, size_t position) {
  if (type == RowType::kFloat32) {
    store_stochastic<RowType::kFloat32>(values, column, a, extent, stream, position);
  } else {
    store_halves_stochastic(type, values, column, a, extent, stream, position);
  }
}

}  // namespace
}  // namespace HOTROW_ISA
}  // namespace hotrow
