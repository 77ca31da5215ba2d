#include "tests/simt/streams.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <utility>
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
static thread_local cudaError_t last_error = cudaSuccess;

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

// Memory of the device and of the host: more is never there.
constexpr size_t kMostBytes = size_t{1} << 40;

cudaError_t fails(cudaError_t error) { return last_error = error; }

class Device {
 public:
  std::recursive_mutex mutex;
  std::vector<cudaStream_t> streams;
  std::set<const void*> registered;
  size_t allocations = 0, device_allocations = 0;
  // Calls that a test makes fail.
  unsigned failing = 0;
  size_t calls = 0, first = 0, every = 0, failed = 0;

  // Whether a call of this kind must fail now.
  bool must_fail(simt::Calls kind) {
    std::lock_guard lock(mutex);
    if ((failing & kind) == 0) return false;
    const size_t number = calls++;
    const bool is =
        number == first || (every != 0 && number > first && (number - first) % every == 0);
    failed += is ? 1 : 0;
    return is;
  }

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
  *at = nullptr;
  if (device().must_fail(simt::kAllocations)) return fails(cudaErrorMemoryAllocation);
  if (bytes <= kMostBytes) *at = ::operator new(bytes, std::align_val_t{256}, std::nothrow);
  if (*at == nullptr) return fails(cudaErrorMemoryAllocation);
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

cudaError_t put(cudaStream_t stream, Work work) {
  if (device().must_fail(simt::kEnqueued)) return fails(cudaErrorUnknown);
  device().add(stream, std::move(work));
  return cudaSuccess;
}

// Runs work until `done`.
template <typename Until>
cudaError_t wait_until(Until&& done) {
  if (device().must_fail(simt::kWaits)) return fails(cudaErrorUnknown);
  device().finish(done);
  return cudaSuccess;
}

}  // namespace

namespace simt {

Failures::Failures(unsigned calls, size_t first, size_t every) {
  std::lock_guard lock(device().mutex);
  device().failing = calls;
  device().first = first;
  device().every = every;
  device().calls = device().failed = 0;
}
Failures::~Failures() {
  std::lock_guard lock(device().mutex);
  device().failing = 0;
}
size_t Failures::count() const {
  std::lock_guard lock(device().mutex);
  return device().failed;
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  (void)put(stream, {std::move(work), nullptr, nullptr});
}
size_t waiting() { return device().waiting(); }
size_t allocations() { return device().allocations; }

}  // namespace simt

size_t simt_device_allocations() { return device().device_allocations; }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered:
      return "pointer does not correspond to a registered memory region";
    default:
      return "unknown error";
  }
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

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
  return wait_until([number = current_device] { return device().is_idle(number); });
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
cudaError_t cudaHostRegister(void* at, size_t, unsigned) {
  if (device().must_fail(simt::kRegistrations)) return fails(cudaErrorMemoryAllocation);
  std::lock_guard lock(device().mutex);
  const bool is_new = device().registered.insert(at).second;
  return is_new ? cudaSuccess : fails(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* at) {
  std::lock_guard lock(device().mutex);
  const bool was_there = device().registered.erase(at) == 1;
  return was_there ? cudaSuccess : fails(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemsetAsync(void* at, int byte, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  return put(stream, {[=] { std::memset(at, byte, bytes); }, nullptr, nullptr});
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  return put(stream, {[=] { std::memcpy(to, from, bytes); }, nullptr, nullptr});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (device().must_fail(simt::kCreations)) return fails(cudaErrorMemoryAllocation);
  std::lock_guard lock(device().mutex);
  *stream = device().streams.emplace_back(new CUstream_st);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard lock(device().mutex);
  device().finish([&] { return stream->queue.empty(); });
  auto& all = device().streams;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == stream) all.erase(all.begin() + static_cast<std::ptrdiff_t>(i--));
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return wait_until([&] { return stream == nullptr || stream->queue.empty(); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->last == nullptr) return cudaSuccess;
  return put(stream, {nullptr, event->last, nullptr});
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (device().must_fail(simt::kCreations)) return fails(cudaErrorMemoryAllocation);
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream != nullptr && stream->device != event->device) die("an event of another device");
  const Done done = std::make_shared<bool>(false);
  const cudaError_t error = put(stream, {nullptr, nullptr, done});
  if (error == cudaSuccess) event->last = done;
  return error;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return wait_until([done = event->last] { return done == nullptr || *done; });
}
