// CUDA's runtime on the CPU, as far as the core uses it: memory, streams and events.
//
// There are two devices; a stream takes work only from threads whose current device is its own.
// Work on the null stream runs at once. Work on other streams is delayed until a thread waits for
// it; it then runs in a random order that streams and events allow. So a missing wait shows as a
// wrong result. Threads that wait at the same time run the work of different streams beside each
// other. New memory is filled with 0xa5.
//
// A call that fails returns its error and leaves it as the thread's last error, as CUDA does, until
// cudaGetLastError reads it. Tests make calls fail (simt::Failures).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>

struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorHostMemoryNotRegistered = 713,
  cudaErrorUnknown = 999
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
constexpr unsigned cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1,
                   cudaHostRegisterMapped = 2;

namespace simt {

// Calls that tests can make fail.
enum Calls : unsigned {
  kAllocations = 1,    // of the device's memory and of pinned memory
  kRegistrations = 2,  // of the host's memory
  kCreations = 4,      // of streams and events
  kEnqueued = 8,       // kernels, copies and fills, records of events, waits of streams
  kWaits = 16,         // of a thread: for an event, a stream or the device
  kAllCalls = 31
};

// While it lives, these calls of all threads are counted from 0. Number `first` does nothing and
// fails, and so does each `every`-th one after it; every 0: none. One at a time.
class Failures {
 public:
  explicit Failures(unsigned calls, size_t first, size_t every = 0);
  ~Failures();
  Failures(const Failures&) = delete;
  // How many calls failed.
  size_t count() const;
};

// Puts the work of a kernel on a stream; if that fails, cudaGetLastError returns the error.
void enqueue(cudaStream_t stream, std::function<void()> work);
// The work of all streams that has not run yet.
size_t waiting();
// Threads that wait while there is no work that may run.
size_t blocked_threads();
// While it lives, no work of the stream runs; who waits for it is blocked.
class HeldStream {
 public:
  explicit HeldStream(cudaStream_t stream);
  ~HeldStream();
  HeldStream(const HeldStream&) = delete;

 private:
  cudaStream_t stream_;
};
// How often device memory was allocated.
size_t allocations();
// A kernel calls it before it reads or writes a row of the host's memory. The program ends if the
// memory is not registered, as it is once it was unregistered or freed.
void use_host_memory(const void* at, size_t bytes);
// How many pieces of the host's memory are registered.
size_t registrations();

// Calls since the start of the process.
struct Counts {
  size_t launches = 0;  // of kernels; a scan or a sort is one
  size_t copies = 0, copied_bytes = 0;
  size_t records = 0;       // of events
  size_t stream_waits = 0;  // of streams for events
  size_t waits = 0;         // of threads: for an event, a stream or the device
  size_t bus_bytes = 0;     // of rows in the host's memory that kernels read or write
};
Counts counts();
inline Counts operator-(const Counts& a, const Counts& b) {
  return {a.launches - b.launches,         a.copies - b.copies,
          a.copied_bytes - b.copied_bytes, a.records - b.records,
          a.stream_waits - b.stream_waits, a.waits - b.waits,
          a.bus_bytes - b.bus_bytes};
}

}  // namespace simt

// How often cudaMalloc allocated device memory; for programs that load the emulator.
extern "C" size_t simt_device_allocations();

const char* cudaGetErrorString(cudaError_t error);
// The last error of a call of this thread. cudaGetLastError also clears it.
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 2, cudaSuccess; }
inline cudaError_t cudaDeviceGetPCIBusId(char* name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "0000:0%d:00.0", device);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMalloc(void** at, size_t bytes);
cudaError_t cudaFree(void* at);
cudaError_t cudaMallocHost(void** at, size_t bytes);
cudaError_t cudaFreeHost(void* at);
cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* at);
cudaError_t cudaHostGetDevicePointer(void** on_device, void* at, unsigned flags);
cudaError_t cudaMemsetAsync(void* at, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
// Priorities change nothing: all orders are tried.
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = *greatest = 0, cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
