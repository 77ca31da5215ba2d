// Sixteen float32 or uint32 values side by side, for kernels/impl.h: the same operations from one,
// two or four native vectors. Included once per instruction set, in a file with its own compiler
// flags. All names are local to it (HOTROW_ISA), so that the linker cannot use one instruction
// set's function for another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hotrow {
namespace HOTROW_ISA {
namespace {

#define HOTROW_INLINE inline __attribute__((always_inline))

constexpr size_t kLanes = 16;
#if defined(__AVX512F__)
constexpr size_t kNative = 16;
#elif defined(__AVX2__)
constexpr size_t kNative = 8;
#else
constexpr size_t kNative = 4;
#endif
constexpr size_t kParts = kLanes / kNative;

typedef float NativeFloats __attribute__((vector_size(4 * kNative)));
typedef uint32_t NativeWords __attribute__((vector_size(4 * kNative)));
typedef int32_t NativeInts __attribute__((vector_size(4 * kNative)));
typedef uint16_t NativeHalves __attribute__((vector_size(2 * kNative)));

struct Floats {
  NativeFloats part[kParts];
};
struct Words {
  NativeWords part[kParts];
};

// Which of the 16 columns exist: all, or the first `count`. Values past them read as zero.
struct Whole {
  static constexpr size_t count = kLanes;
};
struct Tail {
  size_t count;  // 1 to 15
};

#define HOTROW_PARTS _Pragma("GCC unroll 4") for (size_t k = 0; k < kParts; ++k)
#define HOTROW_OPERATOR(Type, op)                         \
  HOTROW_INLINE Type operator op(Type a, const Type& b) { \
    HOTROW_PARTS a.part[k] = a.part[k] op b.part[k];      \
    return a;                                             \
  }
HOTROW_OPERATOR(Floats, +)
HOTROW_OPERATOR(Floats, -)
HOTROW_OPERATOR(Floats, *)
HOTROW_OPERATOR(Floats, /)
HOTROW_OPERATOR(Words, +)
HOTROW_OPERATOR(Words, -)
HOTROW_OPERATOR(Words, *)
HOTROW_OPERATOR(Words, &)
HOTROW_OPERATOR(Words, |)
HOTROW_OPERATOR(Words, ^)
#undef HOTROW_OPERATOR

HOTROW_INLINE Words operator>>(Words a, int bits) {
  HOTROW_PARTS a.part[k] = a.part[k] >> bits;
  return a;
}
HOTROW_INLINE Words operator<<(Words a, int bits) {
  HOTROW_PARTS a.part[k] = a.part[k] << bits;
  return a;
}

HOTROW_INLINE Floats all(float value) {
  Floats a;
  HOTROW_PARTS a.part[k] = value - NativeFloats{};
  return a;
}
HOTROW_INLINE Words all_words(uint32_t value) {
  Words a;
  HOTROW_PARTS a.part[k] = value + NativeWords{};
  return a;
}
// 0, 1, ... 15.
HOTROW_INLINE Words numbers() {
  alignas(64) static constexpr uint32_t kNumbers[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                            8, 9, 10, 11, 12, 13, 14, 15};
  Words a;
  HOTROW_PARTS memcpy(&a.part[k], kNumbers + k * kNative, sizeof(a.part[k]));
  return a;
}

HOTROW_INLINE Words bits_of(const Floats& a) {
  Words bits;
  HOTROW_PARTS bits.part[k] = (NativeWords)a.part[k];
  return bits;
}
HOTROW_INLINE Floats floats_of_bits(const Words& bits) {
  Floats a;
  HOTROW_PARTS a.part[k] = (NativeFloats)bits.part[k];
  return a;
}
// The integer part of values in [0, 2^31), and the float of integers in [0, 2^24].
HOTROW_INLINE Words integers_of(const Floats& a) {
  Words b;
  HOTROW_PARTS b.part[k] = (NativeWords) __builtin_convertvector(a.part[k], NativeInts);
  return b;
}
HOTROW_INLINE Floats floats_of(const Words& a) {
  Floats b;
  HOTROW_PARTS b.part[k] = __builtin_convertvector((NativeInts)a.part[k], NativeFloats);
  return b;
}

// Lane by lane: a < b ? yes : no. Words below 2^31 only.
HOTROW_INLINE Words select_less(const Words& a, const Words& b, Words yes, const Words& no) {
  HOTROW_PARTS yes.part[k] =
      (NativeInts)a.part[k] < (NativeInts)b.part[k] ? yes.part[k] : no.part[k];
  return yes;
}
HOTROW_INLINE Floats select_less(const Floats& a, const Floats& b, Floats yes, const Floats& no) {
  HOTROW_PARTS yes.part[k] = a.part[k] < b.part[k] ? yes.part[k] : no.part[k];
  return yes;
}
HOTROW_INLINE Floats select_equal(const Floats& a, const Floats& b, Floats yes, const Floats& no) {
  HOTROW_PARTS yes.part[k] = a.part[k] == b.part[k] ? yes.part[k] : no.part[k];
  return yes;
}

// The exact IEEE square root.
HOTROW_INLINE Floats square_root(Floats a) {
#if defined(__AVX512F__)
  HOTROW_PARTS a.part[k] = (NativeFloats)_mm512_maskz_sqrt_ps(0xffff, (__m512)a.part[k]);
#elif defined(__AVX2__)
  HOTROW_PARTS a.part[k] = (NativeFloats)_mm256_sqrt_ps((__m256)a.part[k]);
#elif defined(__x86_64__)
  HOTROW_PARTS a.part[k] = (NativeFloats)_mm_sqrt_ps((__m128)a.part[k]);
#else
  HOTROW_PARTS for (size_t j = 0; j < kNative; ++j) {
    a.part[k][j] = __builtin_sqrtf(a.part[k][j]);
  }
#endif
  return a;
}

// The sum of the lanes as a pairwise tree: l with l + 8, then l + 4, l + 2, l + 1.
HOTROW_INLINE float sum_of(const Floats& a) {
  alignas(64) float lane[kLanes];
  HOTROW_PARTS memcpy(lane + k * kNative, &a.part[k], sizeof(a.part[k]));
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}

// Whether a lane is NaN; the others are finite.
HOTROW_INLINE bool any_nan(const Floats& a) {
  NativeFloats sum = a.part[0];
  for (size_t k = 1; k < kParts; ++k) sum = sum + a.part[k];
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)sum, (__m512)sum, _CMP_UNORD_Q) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)sum, (__m256)sum, _CMP_UNORD_Q)) != 0;
#elif defined(__x86_64__)
  return _mm_movemask_ps(_mm_cmpunord_ps((__m128)sum, (__m128)sum)) != 0;
#else
  bool found = false;
  for (size_t j = 0; j < kNative; ++j) found = found || sum[j] != sum[j];
  return found;
#endif
}

// sum, which is 0 or NaN; NaN where x is not finite.
HOTROW_INLINE Floats add_zero_times(Floats sum, const Floats& x) {
#if defined(__AVX512F__)
  // Fused: the result is exact either way.
  sum.part[0] =
      (NativeFloats)_mm512_fmadd_ps((__m512)x.part[0], _mm512_setzero_ps(), (__m512)sum.part[0]);
#elif defined(__FMA__)
  HOTROW_PARTS sum.part[k] =
      (NativeFloats)_mm256_fmadd_ps((__m256)x.part[k], _mm256_setzero_ps(), (__m256)sum.part[k]);
#else
  HOTROW_PARTS sum.part[k] = sum.part[k] + (x.part[k] - x.part[k]);
#endif
  return sum;
}

// The columns that exist; 0 elsewhere.
HOTROW_INLINE Floats existing(const Floats& a, Whole) { return a; }
HOTROW_INLINE Floats existing(const Floats& a, Tail tail) {
  const Words count = all_words(static_cast<uint32_t>(tail.count));
  return floats_of_bits(select_less(numbers(), count, bits_of(a), all_words(0)));
}

HOTROW_INLINE Floats load(const float* from, Whole) {
  Floats a;
  HOTROW_PARTS memcpy(&a.part[k], from + k * kNative, sizeof(a.part[k]));
  return a;
}
HOTROW_INLINE void store(float* to, const Floats& a, Whole) {
  HOTROW_PARTS memcpy(to + k * kNative, &a.part[k], sizeof(a.part[k]));
}

HOTROW_INLINE Words load_halves(const uint16_t* from, Whole) {
  Words a;
#if defined(__AVX512F__)
  a.part[0] =
      (NativeWords)_mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256((const __m256i*)from));
#else
  HOTROW_PARTS {
    NativeHalves halves;
    memcpy(&halves, from + k * kNative, sizeof(halves));
    a.part[k] = __builtin_convertvector(halves, NativeWords);
  }
#endif
  return a;
}
HOTROW_INLINE void store_halves(uint16_t* to, const Words& a, Whole) {
#if defined(__AVX512F__)
  _mm256_storeu_si256((__m256i*)to, _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)a.part[0]));
#else
  HOTROW_PARTS {
    const NativeHalves halves = __builtin_convertvector(a.part[k], NativeHalves);
    memcpy(to + k * kNative, &halves, sizeof(halves));
  }
#endif
}

#if defined(__AVX512F__)
HOTROW_INLINE __mmask16 mask_of(Tail tail) {
  return static_cast<__mmask16>((1u << tail.count) - 1);
}
HOTROW_INLINE Floats load(const float* from, Tail tail) {
  return {{(NativeFloats)_mm512_maskz_loadu_ps(mask_of(tail), from)}};
}
HOTROW_INLINE void store(float* to, const Floats& a, Tail tail) {
  _mm512_mask_storeu_ps(to, mask_of(tail), (__m512)a.part[0]);
}
HOTROW_INLINE Words load_halves(const uint16_t* from, Tail tail) {
  const __m256i halves = _mm256_maskz_loadu_epi16(mask_of(tail), from);
  return {{(NativeWords)_mm512_maskz_cvtepu16_epi32(0xffff, halves)}};
}
HOTROW_INLINE void store_halves(uint16_t* to, const Words& a, Tail tail) {
  _mm256_mask_storeu_epi16(to, mask_of(tail),
                           _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)a.part[0]));
}
#else
HOTROW_INLINE Floats load(const float* from, Tail tail) {
  alignas(64) float values[kLanes] = {};
  for (size_t j = 0; j < tail.count; ++j) values[j] = from[j];
  return load(values, Whole());
}
HOTROW_INLINE void store(float* to, const Floats& a, Tail tail) {
  alignas(64) float values[kLanes];
  store(values, a, Whole());
  for (size_t j = 0; j < tail.count; ++j) to[j] = values[j];
}
HOTROW_INLINE Words load_halves(const uint16_t* from, Tail tail) {
  alignas(32) uint16_t values[kLanes] = {};
  for (size_t j = 0; j < tail.count; ++j) values[j] = from[j];
  return load_halves(values, Whole());
}
HOTROW_INLINE void store_halves(uint16_t* to, const Words& a, Tail tail) {
  alignas(32) uint16_t values[kLanes];
  store_halves(values, a, Whole());
  for (size_t j = 0; j < tail.count; ++j) to[j] = values[j];
}
#endif

}  // namespace
}  // namespace HOTROW_ISA
}  // namespace hotrow
