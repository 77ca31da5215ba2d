// CUDA's runtime on the CPU, as far as the core uses it: memory, streams and events.
//
// There are two devices; a stream takes work only from threads whose current device is its own.
// Work on the null stream runs at once. Work on other streams is delayed until a thread waits for
// it; it then runs in a random order that streams and events allow. So a missing wait shows as a
// wrong result. Threads that wait at the same time run the work of different streams beside each
// other. New memory is filled with 0xa5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>

struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

namespace simt {

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

}  // namespace simt

// How often cudaMalloc allocated device memory; for programs that load the emulator.
extern "C" size_t simt_device_allocations();

inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
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
cudaError_t cudaMemsetAsync(void* at, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
