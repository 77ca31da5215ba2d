// Mixing functions for 64-bit keys. Integer arithmetic only, so that CPU and CUDA agree.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define HOTROW_HD __host__ __device__
#else
#define HOTROW_HD
#endif

namespace hotrow {

// A bijection of 64-bit values whose bits all depend on each other: the finalizer of
// splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
HOTROW_HD inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The inverse: unmix64(mix64(x)) == x.
HOTROW_HD inline uint64_t unmix64(uint64_t x) {
  x = (x ^ (x >> 31) ^ (x >> 62)) * 0x319642b2d24d8ec3ULL;
  x = (x ^ (x >> 27) ^ (x >> 54)) * 0x96de1b173f119089ULL;
  return (x ^ (x >> 30) ^ (x >> 60)) - 0x9e3779b97f4a7c15ULL;
}

HOTROW_HD inline uint64_t combine64(uint64_t a, uint64_t b) { return mix64(mix64(a) ^ b); }

}  // namespace hotrow
