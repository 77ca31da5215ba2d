// Device memory for tests, which run on a GPU, or on the CPU with tests/simt.
#pragma once

#if defined(HOTROW_SIMT)
#include "tests/simt/simt.h"
#else
#include <cuda_runtime.h>
#endif

#include <cstddef>
#include <cstring>
#include <new>
#include <stdexcept>
#include <vector>

#include "core/gpu/kernels/memory.h"
#include "tests/test_size.h"

namespace hotrow {

constexpr DeviceStream kStream = nullptr;

inline void must(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Values on the device, full of 0xa5 unless given; never shorter than one value.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    const size_t bytes = (count + 1) * sizeof(T);
#if defined(HOTROW_SIMT)
    at_ = static_cast<T*>(::operator new(bytes, std::align_val_t{256}));
#else
    void* at = nullptr;
    must(cudaMalloc(&at, bytes));
    at_ = static_cast<T*>(at);
#endif
    must(cudaMemsetAsync(at_, 0xa5, bytes, kStream));
    wait();  // tests use the values on other streams, too
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { write(values); }
  ~DeviceArray() {
#if defined(HOTROW_SIMT)
    ::operator delete(at_, std::align_val_t{256});
#else
    cudaFree(at_);
#endif
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return at_; }
  size_t size() const { return count_; }
  void write(const std::vector<T>& values) {
    must(
        cudaMemcpyAsync(at_, values.data(), values.size() * sizeof(T), cudaMemcpyDefault, kStream));
    wait();
  }
  std::vector<T> read(size_t count, size_t first = 0) const {
    std::vector<T> values(count);
    must(
        cudaMemcpyAsync(values.data(), at_ + first, count * sizeof(T), cudaMemcpyDefault, kStream));
    wait();
    return values;
  }
  std::vector<T> read() const { return read(count_); }

 private:
  static void wait() {
#if !defined(HOTROW_SIMT)
    must(cudaStreamSynchronize(kStream));
#endif
  }
  T* at_ = nullptr;
  size_t count_;
};

// Values behind a pointer to the device.
template <typename T>
std::vector<T> read_device(const T* at, size_t count) {
  std::vector<T> values(count);
  must(cudaMemcpyAsync(values.data(), at, count * sizeof(T), cudaMemcpyDefault, kStream));
#if !defined(HOTROW_SIMT)
  must(cudaStreamSynchronize(kStream));
#endif
  return values;
}

// Scratch memory of the requested size.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : memory_(bytes) {}
  void* data() const { return memory_.data(); }
  size_t bytes() const { return memory_.size(); }

 private:
  DeviceArray<std::byte> memory_;
};

}  // namespace hotrow
