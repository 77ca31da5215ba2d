#include "tests/simt/streams.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <vector>

// Whether the work before a record is done.
using Done = std::shared_ptr<bool>;

struct Work {
  std::function<void()> body;
  Done waits_for;  // may be null
  Done ends;       // may be null
};
// The device that is current in the calling thread.
static thread_local int current_device = 0;

struct CUstream_st {
  const int device = current_device;
  std::deque<Work> queue;
};
struct CUevent_st {
  const int device = current_device;
  Done last;  // null: never recorded
};

namespace {

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "simt: %s\n", what);
  std::abort();
}

class Device {
 public:
  std::recursive_mutex mutex;
  std::vector<cudaStream_t> streams;
  size_t allocations = 0, device_allocations = 0;

  void add(cudaStream_t stream, Work work) {
    std::lock_guard lock(mutex);
    if (stream != nullptr) {
      if (stream->device != current_device) die("work for a stream of another device");
      stream->queue.push_back(std::move(work));
      return;
    }
    if (work.waits_for != nullptr) finish([&] { return *work.waits_for; });
    end(work);
  }

  // Runs work in any allowed order until `done`.
  template <typename Until>
  void finish(Until&& done) {
    std::lock_guard lock(mutex);
    while (!done()) {
      std::vector<cudaStream_t> ready;
      for (cudaStream_t stream : streams) {
        if (stream->queue.empty()) continue;
        const Done& wanted = stream->queue.front().waits_for;
        if (wanted == nullptr || *wanted) ready.push_back(stream);
      }
      if (ready.empty()) die("what is waited for never comes");
      cudaStream_t stream = ready[random_() % ready.size()];
      const Work work = std::move(stream->queue.front());
      stream->queue.pop_front();
      end(work);
    }
  }
  void finish_all() {
    finish([&] { return waiting() == 0; });
  }
  size_t waiting() {
    std::lock_guard lock(mutex);
    size_t count = 0;
    for (cudaStream_t stream : streams) count += stream->queue.size();
    return count;
  }
  bool is_idle(int number) {
    std::lock_guard lock(mutex);
    for (cudaStream_t stream : streams) {
      if (stream->device == number && !stream->queue.empty()) return false;
    }
    return true;
  }

 private:
  static void end(const Work& work) {
    if (work.body) work.body();
    if (work.ends != nullptr) *work.ends = true;
  }
  std::mt19937_64 random_{20261121};
};

Device& device() {
  static Device own;
  return own;
}

cudaError_t take(void** at, size_t bytes) {
  *at = ::operator new(bytes, std::align_val_t{256}, std::nothrow);
  if (*at == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*at, 0xa5, bytes);
  std::lock_guard lock(device().mutex);
  ++device().allocations;
  return cudaSuccess;
}

// As CUDA's, it waits for all work.
cudaError_t give_back(void* at) {
  device().finish_all();
  ::operator delete(at, std::align_val_t{256});
  return cudaSuccess;
}

}  // namespace

namespace simt {

void enqueue(cudaStream_t stream, std::function<void()> work) {
  device().add(stream, {std::move(work), nullptr, nullptr});
}
size_t waiting() { return device().waiting(); }
size_t allocations() { return device().allocations; }

}  // namespace simt

size_t simt_device_allocations() { return device().device_allocations; }

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device > 1) die("a device that is not there");
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  device().finish([number = current_device] { return device().is_idle(number); });
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** at, size_t bytes) {
  {
    std::lock_guard lock(device().mutex);
    ++device().device_allocations;
  }
  return take(at, bytes);
}
cudaError_t cudaFree(void* at) { return give_back(at); }
cudaError_t cudaMallocHost(void** at, size_t bytes) { return take(at, bytes); }
cudaError_t cudaFreeHost(void* at) { return give_back(at); }

cudaError_t cudaMemsetAsync(void* at, int byte, size_t bytes, cudaStream_t stream) {
  if (bytes > 0) simt::enqueue(stream, [=] { std::memset(at, byte, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (bytes > 0) simt::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  std::lock_guard lock(device().mutex);
  *stream = device().streams.emplace_back(new CUstream_st);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard lock(device().mutex);
  cudaStreamSynchronize(stream);
  auto& all = device().streams;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == stream) all.erase(all.begin() + static_cast<std::ptrdiff_t>(i--));
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr) device().finish([&] { return stream->queue.empty(); });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->last != nullptr) device().add(stream, {nullptr, event->last, nullptr});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream != nullptr && stream->device != event->device) die("an event of another device");
  event->last = std::make_shared<bool>(false);
  device().add(stream, {nullptr, nullptr, event->last});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->last != nullptr) device().finish([done = event->last] { return *done; });
  return cudaSuccess;
}
