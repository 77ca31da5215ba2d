// A small SIMT machine for tests: g++ compiles the kernels of core/gpu against this header, and
// they run on the CPU, one fiber a CUDA thread (simt.cc). Threads take turns at random wherever
// they meet (barriers, shuffles, atomics), so a missing barrier shows as a wrong result; blocks run
// on two host threads, in random order. It supports only what our kernels use: grids and blocks of
// one dimension, static shared memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "tests/simt/weak_memory.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Shared memory belongs to a host thread, which runs one block at a time. As on a device, nothing
// clears it.
#define __shared__ static thread_local

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace simt {

struct Index {
  unsigned x = 0;
};

// How the threads of all later launches take turns.
void set_seed(uint64_t seed);

// Runs body once for each thread of each block.
void run(unsigned blocks, unsigned threads, const std::function<void()>& body);

// Waits for the other lanes of mask; returns each lane's value. ordered: their earlier writes are
// visible afterwards, as after __syncwarp but not after a shuffle. The array is valid until the
// second-next meeting of these lanes.
const uint64_t* meet(unsigned mask, uint64_t value, bool ordered);
void meet_block();
// Perhaps lets another thread run.
void step_aside();

// Bytes of rows, gradients and outputs (core/gpu/kernels/rows.h) since the start of the process.
struct RowBytes {
  size_t loaded = 0, stored = 0;
};
RowBytes row_bytes();
void count_row_bytes(size_t loaded, size_t stored);

template <typename T>
uint64_t pack(T value) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <typename T>
T unpack(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace simt

extern thread_local simt::Index threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads() { simt::meet_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { simt::meet(mask, 0, true); }
template <typename T>
T __shfl_sync(unsigned mask, T value, unsigned lane) {
  return simt::unpack<T>(simt::meet(mask, simt::pack(value), false)[lane % 32]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, unsigned other) {
  return __shfl_sync(mask, value, (threadIdx.x % 32) ^ other);
}
inline unsigned __ballot_sync(unsigned mask, bool is) {
  const uint64_t* all = simt::meet(mask, is, false);
  unsigned found = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && all[lane] != 0) found |= 1u << lane;
  }
  return found;
}
inline bool __all_sync(unsigned mask, bool is) { return __ballot_sync(mask, is) == mask; }
inline bool __any_sync(unsigned mask, bool is) { return __ballot_sync(mask, is) != 0; }
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  const uint64_t* all = simt::meet(mask, value, false);
  unsigned least = 0xffffffffu;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && all[lane] < least) least = static_cast<unsigned>(all[lane]);
  }
  return least;
}
inline int __ffs(unsigned value) { return __builtin_ffs(static_cast<int>(value)); }
inline int __popc(unsigned value) { return __builtin_popcount(value); }

inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  simt::weak::fence();
}
template <typename T, typename V>
T atomicAdd(T* at, V value) {
  simt::step_aside();
  return __atomic_fetch_add(at, static_cast<T>(value), __ATOMIC_RELAXED);
}
template <typename T>
T atomicExch(T* at, T value) {
  simt::step_aside();
  return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);
}
template <typename T>
T atomicCAS(T* at, T expected, T value) {
  simt::step_aside();
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <typename T>
T atomicMin(T* at, T value) {
  T found = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < found) {
    const T seen = atomicCAS(at, found, value);
    if (seen == found) break;
    found = seen;
  }
  return found;
}

#include "tests/simt/streams.h"
