// Owners of streams, events and memory of a device.
#pragma once

#include <string>
#include <utility>

#include "core/gpu/kernels/allocator.h"
#include "core/gpu/kernels/api.h"
#include "core/gpu/kernels/memory.h"

namespace hotrow {

// Fails with FailedPrecondition when there is no such GPU. what: is to be on it, for the message.
inline void check_gpu(const std::string& what, int gpu) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  ignore(error);
  if (error != cudaSuccess || count == 0) {
    fail(Code::kFailedPrecondition, "%s on GPU %d: there is no GPU: %s", what.c_str(), gpu,
         error == cudaSuccess ? "no device" : cudaGetErrorString(error));
  }
  if (gpu < 0 || gpu >= count) {
    fail(Code::kFailedPrecondition, "%s on GPU %d: there are 0 to %d", what.c_str(), gpu,
         count - 1);
  }
}

// Makes a device the calling thread's for as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    check(cudaGetDevice(&before_), "the current device");
    if (device != before_) check(cudaSetDevice(device), "the table's device");
    changed_ = device != before_;
  }
  ~OnDevice() {
    if (changed_) ignore(cudaSetDevice(before_));
  }
  OnDevice(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// A stream that does not wait for the default stream.
class OwnStream {
 public:
  enum class Priority { kDefault, kLow };

  explicit OwnStream(Priority priority = Priority::kDefault) {
    int least = 0, greatest = 0;
    if (priority == Priority::kLow) {
      check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
    }
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, least), "a stream");
  }
  ~OwnStream() { ignore(cudaStreamDestroy(stream_)); }
  OwnStream(const OwnStream&) = delete;
  DeviceStream get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// A point in a stream's work. Before the first record, waits for it return at once.
class DeviceEvent {
 public:
  DeviceEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event"); }
  ~DeviceEvent() { ignore(cudaEventDestroy(event_)); }
  DeviceEvent(const DeviceEvent&) = delete;
  void record(DeviceStream stream) { check(cudaEventRecord(event_, stream), "record an event"); }
  // At the end of a call, which must not fail: if there is no record, the thread waits for the
  // work.
  void record_or_wait(DeviceStream stream) noexcept {
    const cudaError_t error = cudaEventRecord(event_, stream);
    ignore(error);
    if (error != cudaSuccess) ignore(cudaStreamSynchronize(stream));
  }
  // The stream's later work waits for it.
  void hold(DeviceStream stream) const {
    check(cudaStreamWaitEvent(stream, event_, 0), "wait for an event");
  }
  // The calling thread waits.
  void wait() const { check(cudaEventSynchronize(event_), "wait for the device"); }

 private:
  cudaEvent_t event_ = nullptr;
};

enum class MemoryOf { kDevice, kHost };  // kHost: pinned

// Memory that grows, and then loses its contents. Growing waits for the device, so a step does it
// only for batches larger than any before. Device memory belongs to the calling thread's device,
// and comes from the registered allocator if there is one.
//
// A framework's allocator may return memory that work on the framework's own stream still uses,
// because the new user's work comes later on that stream. It expects the same of memory that is
// freed. The core uses memory on several streams, so it waits for the device between allocating
// memory and using it, and between using it and freeing it. The second wait is there for CUDA's
// memory, too, pinned memory included: that its functions wait for work in flight is no promise.
template <MemoryOf kWhere>
class GrowingBlock {
 public:
  GrowingBlock() = default;
  ~GrowingBlock() {
    try {
      release();
    } catch (const Error&) {
      // The device is lost, and its memory with it.
    }
  }
  GrowingBlock(GrowingBlock&& other) noexcept { *this = std::move(other); }
  // Swaps the two: neither waits.
  GrowingBlock& operator=(GrowingBlock&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
    std::swap(from_, other.from_);
    return *this;
  }

  std::byte* data() const { return at_; }
  size_t bytes() const { return bytes_; }
  // most: an upper bound of all sizes; 0: not known.
  void reserve(size_t bytes, size_t most = 0) {
    if (bytes <= bytes_) return;
    release();
    size_t wanted = bytes + bytes / 4;
    if (most != 0 && wanted > most && bytes <= most) wanted = most;
    void* at = nullptr;
    check(cudaGetDevice(&device_), "the current device");
    if constexpr (kWhere == MemoryOf::kDevice) {
      from_ = allocator_of(device_);
      at = from_.allocate == nullptr ? take(wanted) : take_from_caller(wanted);
    } else {
      check(cudaMallocHost(&at, wanted), "pinned memory");
    }
    at_ = static_cast<std::byte*>(at);
    bytes_ = wanted;
  }
  DeviceArena arena() const { return DeviceArena(at_, bytes_); }

 private:
  static void* take(size_t bytes) {
    void* at = nullptr;
    check(cudaMalloc(&at, bytes), "memory of the device");
    return at;
  }
  void* take_from_caller(size_t bytes) const {
    void* const at = from_.allocate(from_.context, bytes);
    forget_last_error();  // it may have asked CUDA in vain, before it found memory or gave up
    if (at == nullptr) {
      fail(Code::kResourceExhausted,
           "GPU %d: the allocator that was registered for it has no %zu bytes", device_, bytes);
    }
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) from_.release(from_.context, at);
    check(error, "wait for the device");
    return at;
  }
  void release() {
    if (at_ == nullptr) return;
    const OnDevice here(device_);
    check(cudaDeviceSynchronize(), "wait for the device");
    void* const at = std::exchange(at_, nullptr);
    bytes_ = 0;
    if constexpr (kWhere == MemoryOf::kHost) {
      ignore(cudaFreeHost(at));
    } else if (from_.allocate == nullptr) {
      ignore(cudaFree(at));
    } else {
      from_.release(from_.context, at);
    }
  }
  std::byte* at_ = nullptr;
  size_t bytes_ = 0;
  int device_ = 0;
  hr_device_allocator from_{};  // null functions: CUDA's
};
using DeviceBlock = GrowingBlock<MemoryOf::kDevice>;
using PinnedBlock = GrowingBlock<MemoryOf::kHost>;

// Reserves the memory that take(arena) counts, calls it again with the memory, and returns its
// result.
template <MemoryOf kWhere, typename Take>
auto take_from(GrowingBlock<kWhere>& block, Take&& take) {
  DeviceArena sizes;
  take(sizes);
  block.reserve(sizes.used());
  DeviceArena arena = block.arena();
  return take(arena);
}

// The same for memory that never grows: no more is reserved than take(arena) counts.
template <MemoryOf kWhere, typename Take>
auto take_exactly(GrowingBlock<kWhere>& block, Take&& take) {
  DeviceArena sizes;
  take(sizes);
  block.reserve(sizes.used(), sizes.used());
  DeviceArena arena = block.arena();
  return take(arena);
}

template <typename T>
void copy_async(T* to, const T* from, size_t count, DeviceStream stream) {
  if (count == 0) return;
  check(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDefault, stream), "copy");
}

}  // namespace hotrow
