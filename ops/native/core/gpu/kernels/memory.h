// Streams and memory of a device for C++ without CUDA's headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/status.h"

struct CUstream_st;

namespace hotrow {

// A cudaStream_t. All device functions of the core enqueue their work on the given stream and
// return at once: they never wait, and allocate no memory.
using DeviceStream = CUstream_st*;

// Hands out pieces of a block of memory that the caller owns, one after the other. Without a block
// it only counts: so functions report how much scratch memory they need.
class DeviceArena {
 public:
  static constexpr size_t kAlignment = 256;

  DeviceArena() = default;
  // at: aligned to kAlignment, on the device.
  DeviceArena(void* at, size_t bytes)
      : at_(static_cast<std::byte*>(at)), bytes_(bytes), counts_only_(false) {}

  // Room for `count` values, aligned to kAlignment. Fails when the block is too small.
  template <typename T>
  T* take(size_t count) {
    const size_t first = used_;
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    if (counts_only_) return nullptr;
    if (used_ > bytes_) {
      fail(Code::kInternal, "%zu bytes of scratch memory on the device; %zu are wanted", bytes_,
           used_);
    }
    return reinterpret_cast<T*>(at_ + first);
  }
  size_t used() const { return used_; }

 private:
  std::byte* at_ = nullptr;
  size_t bytes_ = 0;
  size_t used_ = 0;
  bool counts_only_ = true;
};

// Whether kernels do their work: the device decides, when the host does not know yet whether a
// batch has missing keys.
struct DeviceIf {
  const uint32_t* missing = nullptr;  // M on the device; null: they do
  bool any = false;                   // they do if M > 0; otherwise if M is 0
};

}  // namespace hotrow
