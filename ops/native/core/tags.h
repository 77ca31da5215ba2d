// Sixteen tags of 8 bits, compared at once: what buckets and sets of hashed rows look at first.
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

}  // namespace hotrow
