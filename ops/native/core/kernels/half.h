// 16-bit floats: bfloat16 and IEEE float16, to and from float32, by integer arithmetic, so that
// CPU and CUDA agree. Finite values that are too large become the largest finite value; infinity
// stays infinity and NaN stays NaN. kernels/values.h has the same functions 16 values at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/base/hash.h"

namespace hotrow {

// Random bits of a row's stochastic rounding: a pure function of the run and table (seed), the
// key, the clock and, in `rounding_bits`, the position: the number of the value in its line.
HOTROW_HD inline uint64_t rounding_stream(uint64_t seed, int64_t key, uint32_t clock) {
  return combine64(combine64(seed, static_cast<uint64_t>(key)), clock);
}

// The finalizer `lowbias32` of C. Wellons' hash-prospector.
HOTROW_HD inline uint32_t rounding_bits(uint64_t stream, uint32_t position) {
  uint32_t x = static_cast<uint32_t>(stream) + position * 0x9e3779b9u;
  x ^= static_cast<uint32_t>(stream >> 32);
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

HOTROW_HD inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

HOTROW_HD inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

HOTROW_HD inline float float_of_bfloat16(uint16_t half) {
  return float_of_bits(static_cast<uint32_t>(half) << 16);
}

HOTROW_HD inline float float_of_float16(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  uint32_t bits = (magnitude << 13) + (112u << 23);
  if (magnitude < 0x0400u) bits = bits_of_float(static_cast<float>(magnitude) * 0x1p-24f);
  if (magnitude >= 0x7c00u) bits = (magnitude << 13) | 0x7f800000u;
  if (magnitude > 0x7c00u) bits |= 0x00400000u;  // a quiet NaN
  return float_of_bits(sign | bits);
}

// `step` is added below the last kept bit before the rest is truncated.
HOTROW_HD inline uint16_t bfloat16_with_step(uint32_t bits, uint32_t step) {
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t half = (magnitude + step) >> 16;
  if (half > 0x7f7fu) half = 0x7f7fu;
  if (magnitude >= 0x7f800000u) half = magnitude >> 16;
  if (magnitude > 0x7f800000u) half |= 0x40u;
  return static_cast<uint16_t>(sign | half);
}

// Nearest, ties to even.
HOTROW_HD inline uint16_t bfloat16_nearest(float value) {
  const uint32_t bits = bits_of_float(value);
  return bfloat16_with_step(bits, 0x7fffu + ((bits >> 16) & 1u));
}

// Up or down with probabilities that make the expected value exact. random: 32 random bits.
HOTROW_HD inline uint16_t bfloat16_stochastic(float value, uint32_t random) {
  return bfloat16_with_step(bits_of_float(value), random >> 16);
}

// Joins the two ranges of float16. subnormal: the result, should |value| be below 2^-14.
HOTROW_HD inline uint16_t float16_with_step(uint32_t bits, uint32_t step, uint32_t subnormal) {
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t half = (magnitude - (112u << 23) + step) >> 13;
  if (half > 0x7bffu) half = 0x7bffu;
  if (magnitude < (113u << 23)) half = subnormal;
  if (magnitude >= 0x7f800000u) half = 0x7c00u;
  if (magnitude > 0x7f800000u) half |= 0x0200u | ((magnitude >> 13) & 0x03ffu);
  return static_cast<uint16_t>(sign | half);
}

// |value| if it is below 2^-14, else 0.
HOTROW_HD inline float float16_subnormal_part(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  return magnitude < (113u << 23) ? float_of_bits(magnitude) : 0.0f;
}

// Nearest, ties to even.
HOTROW_HD inline uint16_t float16_nearest(float value) {
  const uint32_t bits = bits_of_float(value);
  // Adding 2^23 leaves the nearest integer in the low bits.
  const float subnormal = float16_subnormal_part(bits) * 0x1p24f + 0x1p23f;
  return float16_with_step(bits, 0x0fffu + ((bits >> 13) & 1u), bits_of_float(subnormal) & 0x7fffu);
}

// As bfloat16_stochastic. Below 2^-14 the probability is exact to 2^-21.
HOTROW_HD inline uint16_t float16_stochastic(float value, uint32_t random) {
  const uint32_t bits = bits_of_float(value);
  const auto subnormal = static_cast<uint32_t>(float16_subnormal_part(bits) * 0x1p45f);
  return float16_with_step(bits, random >> 19, (subnormal + (random >> 11)) >> 21);
}

}  // namespace hotrow
