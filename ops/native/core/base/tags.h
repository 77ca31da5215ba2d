// Sixteen tags of 8 bits, compared at once: lookups in buckets and sets compare tags first.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hotrow {

// Bit i: tags[i] == tag. tags: 16 bytes, aligned to 16.
inline uint32_t match_tags(const uint8_t* tags, uint8_t tag) {
#if defined(__SSE2__)
  const __m128i all = _mm_load_si128(reinterpret_cast<const __m128i*>(tags));
  const __m128i same = _mm_cmpeq_epi8(all, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<uint32_t>(_mm_movemask_epi8(same));
#else
  uint32_t fits = 0;
  for (uint32_t i = 0; i < 16; ++i) fits |= (tags[i] == tag ? 1u : 0u) << i;
  return fits;
#endif
}

// The same for 16 bytes in two words that the caller has read one by one, since other threads may
// change them.
inline uint32_t match_tags(uint64_t low, uint64_t high, uint8_t tag) {
#if defined(__SSE2__)
  const __m128i all = _mm_set_epi64x(static_cast<int64_t>(high), static_cast<int64_t>(low));
  const __m128i same = _mm_cmpeq_epi8(all, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<uint32_t>(_mm_movemask_epi8(same));
#else
  uint32_t fits = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    fits |= (static_cast<uint8_t>(low >> (8 * i)) == tag ? 1u : 0u) << i;
    fits |= (static_cast<uint8_t>(high >> (8 * i)) == tag ? 1u : 0u) << (8 + i);
  }
  return fits;
#endif
}

}  // namespace hotrow
