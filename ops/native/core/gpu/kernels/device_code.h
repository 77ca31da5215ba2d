// Basics for the kernels of core/gpu. nvcc compiles them for the device; the tests compile the same
// files with g++ for the CPU, where simt.h (tests/simt) replaces CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/base/hash.h"
#include "core/base/status.h"
#include "core/gpu/kernels/api.h"
#include "core/gpu/kernels/memory.h"

// Results have the bits of the CPU's kernels only with IEEE arithmetic.
#if defined(__CUDA_ARCH__) && (defined(__CUDA_FTZ) || !defined(HOTROW_NO_FMAD))
#error "compile with -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -DHOTROW_NO_FMAD"
#endif

namespace hotrow {

constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
// Threads of a block by default.
constexpr unsigned kBlockThreads = 256;
// Enough blocks to fill any device, for kernels whose blocks loop over pieces of work.
constexpr unsigned kMostBlocks = 2112;  // 16 a multiprocessor of an H200

// Starts kernel(arguments...) on the stream. blocks: at least 1. name: for messages.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), size_t blocks, unsigned threads,
            DeviceStream stream, Arguments... arguments) {
#if defined(__CUDACC__)
  kernel<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(
      static_cast<Parameters>(arguments)...);
#else
  simt::enqueue(stream, [=] {
    simt::run(static_cast<unsigned>(blocks), threads,
              [&] { kernel(static_cast<Parameters>(arguments)...); });
  });
#endif
  check(cudaGetLastError(), name);
}

// The number of blocks that cover count, at least 1, at most `most`.
inline size_t blocks_for(size_t count, size_t each = kBlockThreads, size_t most = kMostBlocks) {
  const size_t blocks = (count + each - 1) / each;
  return blocks == 0 ? 1 : blocks < most ? blocks : most;
}

HOTROW_HD constexpr uint32_t least(size_t a, size_t b) {
  return static_cast<uint32_t>(a < b ? a : b);
}

// How many bits numbers in [0, count] have.
inline int bits_for(uint64_t count) {
  int bits = 1;
  while (bits < 64 && count >> bits != 0) ++bits;
  return bits;
}

// --- in kernels ----------------------------------------------------------------------------------

__device__ inline bool holds(const DeviceIf& condition) {
  return condition.missing == nullptr || (*condition.missing != 0) == condition.any;
}

// For i = thread_index(); i < count; i += thread_stride().
__device__ inline size_t thread_index() { return size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline size_t thread_stride() { return size_t{gridDim.x} * blockDim.x; }

// Loads and stores of values that other threads change meanwhile: neither torn nor kept in a
// register.
template <typename T>
__device__ inline T load_relaxed(const T* at) {
#if defined(HOTROW_SIMT)
  return simt::load(at, simt::Order::kRelaxed);
#else
  return *static_cast<const volatile T*>(at);
#endif
}
template <typename T>
__device__ inline void store_relaxed(T* at, T value) {
#if defined(HOTROW_SIMT)
  simt::store(at, value, simt::Order::kRelaxed);
#else
  *static_cast<volatile T*>(at) = value;
#endif
}
// Loads four words at once; no word is torn. at: a multiple of 16.
__device__ inline uint4 load_relaxed_four(const uint4* at) {
  uint4 v;
#if defined(HOTROW_SIMT)
  v = {load_relaxed(&at->x), load_relaxed(&at->y), load_relaxed(&at->z), load_relaxed(&at->w)};
#else
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(at))
               : "memory");
#endif
  return v;
}
__device__ inline void store_relaxed_four(uint4* at, const uint4& v) {
#if defined(HOTROW_SIMT)
  store_relaxed(&at->x, v.x), store_relaxed(&at->y, v.y);
  store_relaxed(&at->z, v.z), store_relaxed(&at->w, v.w);
#else
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(at)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
#endif
}
// Later accesses of this thread come after it.
__device__ inline uint32_t load_acquire(const uint32_t* at) {
#if defined(HOTROW_SIMT)
  return simt::load(at, simt::Order::kAcquire);
#else
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(value)
               : "l"(__cvta_generic_to_global(at))
               : "memory");
  return value;
#endif
}
// Earlier accesses of this thread come before it, and those of other threads before the last
// barrier that it shared with them.
__device__ inline void store_release(uint32_t* at, uint32_t value) {
#if defined(HOTROW_SIMT)
  simt::store(at, value, simt::Order::kRelease);
#else
  asm volatile("st.release.gpu.global.u32 [%0], %1;"
               :
               : "l"(__cvta_generic_to_global(at)), "r"(value)
               : "memory");
#endif
}

// Loads and stores of values that a kernel needs once, and that do not change meanwhile: caches
// need not keep them. By name CUDA has them, too (__ldcs), but clang's headers do not.
__device__ inline float load_streaming(const float* at) {
#if defined(HOTROW_SIMT)
  return *at;
#else
  float value;
  asm("ld.global.cs.f32 %0, [%1];" : "=f"(value) : "l"(__cvta_generic_to_global(at)));
  return value;
#endif
}
// at: a multiple of 16, as below.
__device__ inline uint4 load_streaming(const uint4* at) {
#if defined(HOTROW_SIMT)
  return *at;
#else
  uint4 v;
  asm("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(__cvta_generic_to_global(at)));
  return v;
#endif
}
__device__ inline void store_streaming(float4* at, const float4& v) {
#if defined(HOTROW_SIMT)
  *at = v;
#else
  asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(at)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
#endif
}

__device__ inline uint64_t high_product(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// The last r < count with first(r) <= at. first: ascending, first(0) <= at.
template <typename U, typename First>
__device__ inline unsigned find_last(unsigned count, U at, First&& first) {
  unsigned low = 0, high = count - 1;
  while (low < high) {
    const unsigned middle = (low + high + 1) / 2;
    if (first(middle) <= at) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The range that holds `at`. begins: (count + 1), ascending from 0; at < begins[count].
template <typename T, typename U>
__device__ inline unsigned find_range(const T* begins, unsigned count, U at) {
  return find_last(count, at, [&](unsigned r) { return begins[r]; });
}

// A power of two of neighbouring lanes of a warp that work on one row together.
struct Tile {
  unsigned lanes, lane, mask, first;

  template <typename T>
  __device__ T from(T value, unsigned which) const {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<T>(
          __shfl_sync(mask, reinterpret_cast<uintptr_t>(value), first + which));
    } else {
      return __shfl_sync(mask, value, first + which);
    }
  }
  template <typename T>
  __device__ T from_xor(T value, unsigned other) const {
    return __shfl_xor_sync(mask, value, other);
  }
  __device__ bool all(bool is) const { return __all_sync(mask, is) != 0; }
};
__device__ inline Tile tile_of(unsigned lanes) {
  const unsigned lane = threadIdx.x % kWarp, first = lane / lanes * lanes;
  return {lanes, lane - first, (lanes == kWarp ? kAllLanes : ((1u << lanes) - 1) << first), first};
}

// --- small values from the host ------------------------------------------------------------------

// With the other arguments of its kernel, at most the 4 KB that every CUDA allows.
constexpr size_t kUploadBytes = 4064;
struct UploadPiece {
  alignas(16) std::byte bytes[kUploadBytes];
};
// Writes `count` values to the device, ordered by the stream; `from` is free again at once.
// Not by cudaMemcpyAsync, which waits for the stream when memory is pageable.
void upload_bytes(void* to, const void* from, size_t bytes, DeviceStream stream);
template <typename T>
void upload(T* to, const T* from, size_t count, DeviceStream stream) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0);
  upload_bytes(to, from, count * sizeof(T), stream);
}

}  // namespace hotrow
