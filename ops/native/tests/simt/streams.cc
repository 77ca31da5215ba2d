#include "tests/simt/streams.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <utility>
#include <vector>

// Whether the work before a record is done.
using Done = std::shared_ptr<bool>;

struct Work {
  std::function<void()> body;
  Done waits_for;  // may be null
  Done ends;       // may be null
  // Of a copy, (bytes) each.
  const std::byte *to = nullptr, *from = nullptr;
  size_t bytes = 0;

  bool copies(const std::byte* block, size_t size) const {
    return (to < block + size && block < to + bytes) ||
           (from < block + size && block < from + bytes);
  }
};
// The device that is current in the calling thread.
static thread_local int current_device = 0;
static thread_local cudaError_t last_error = cudaSuccess;

struct CUstream_st {
  const int device = current_device;
  std::deque<Work> queue;
  bool busy = false;  // a thread runs its work
  bool held = false;

  bool idle() const { return queue.empty() && !busy; }
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
  std::mutex mutex;  // of all below, of streams and of events
  std::vector<cudaStream_t> streams;
  size_t allocations = 0, device_allocations = 0;
  std::map<void*, size_t> blocks;                 // their bytes
  std::map<const std::byte*, size_t> registered;  // their bytes
  simt::Counts counts;
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
    std::unique_lock lock(mutex);
    add(lock, stream, std::move(work));
  }
  void record(cudaEvent_t event, cudaStream_t stream) {
    std::unique_lock lock(mutex);
    event->last = std::make_shared<bool>(false);
    add(lock, stream, {nullptr, nullptr, event->last, nullptr, nullptr, 0});
  }
  void hold(cudaStream_t stream, cudaEvent_t event) {
    std::unique_lock lock(mutex);
    if (event->last != nullptr)
      add(lock, stream, {nullptr, event->last, nullptr, nullptr, nullptr, 0});
  }
  void wait(cudaEvent_t event) {
    std::unique_lock lock(mutex);
    if (event->last != nullptr) finish(lock, [done = event->last] { return *done; });
  }
  void set_held(cudaStream_t stream, bool held) {
    std::lock_guard lock(mutex);
    stream->held = held;
    changed_.notify_all();
  }

  // Runs work in any allowed order until `done`; beside other threads that do so.
  template <typename Until>
  void finish(Until&& done) {
    std::unique_lock lock(mutex);
    finish(lock, done);
  }
  void finish_all_of(int number) {
    finish([&] {
      for (cudaStream_t stream : streams) {
        if (stream->device == number && !stream->idle()) return false;
      }
      return !null_busy_;
    });
  }
  size_t waiting() {
    std::lock_guard lock(mutex);
    size_t count = 0;
    for (cudaStream_t stream : streams) count += stream->queue.size();
    return count;
  }
  // Fails if a copy that has not run yet uses the block.
  void forget(void* at) {
    std::lock_guard lock(mutex);
    const auto block = blocks.find(at);
    if (block == blocks.end()) die("memory is freed that was not allocated");
    for (cudaStream_t stream : streams) {
      for (const Work& work : stream->queue) {
        if (!work.copies(static_cast<const std::byte*>(at), block->second)) continue;
        die("memory is freed that a copy is about to use");
      }
    }
    blocks.erase(block);
  }
  // Whether the piece lies in registered memory; in the mutex.
  bool is_registered(const void* at, size_t bytes) const {
    const auto* const first = static_cast<const std::byte*>(at);
    const auto next = registered.upper_bound(first);
    if (next == registered.begin()) return false;
    const auto& [begin, size] = *std::prev(next);
    return first + bytes <= begin + size;
  }
  size_t blocked() {
    std::lock_guard lock(mutex);
    return blocked_;
  }

 private:
  void add(std::unique_lock<std::mutex>& lock, cudaStream_t stream, Work work) {
    if (stream != nullptr) {
      if (stream->device != current_device) die("work for a stream of another device");
      stream->queue.push_back(std::move(work));
      changed_.notify_all();
      return;
    }
    // The null stream does one thing at a time.
    finish(lock, [&] { return !null_busy_ && (!work.waits_for || *work.waits_for); });
    run(lock, work, &null_busy_);
  }
  template <typename Until>
  void finish(std::unique_lock<std::mutex>& lock, Until&& done) {
    while (!done()) {
      std::vector<cudaStream_t> ready;
      bool held = false;
      for (cudaStream_t stream : streams) {
        if (stream->queue.empty() || stream->busy) continue;
        held = held || stream->held;
        const Done& wanted = stream->queue.front().waits_for;
        if (!stream->held && (wanted == nullptr || *wanted)) ready.push_back(stream);
      }
      if (ready.empty()) {
        if (running_ == 0 && !held) die("what is waited for never comes");
        ++blocked_;
        changed_.wait(lock);
        --blocked_;
        continue;
      }
      cudaStream_t stream = ready[random_() % ready.size()];
      const Work work = std::move(stream->queue.front());
      stream->queue.pop_front();
      run(lock, work, &stream->busy);
    }
  }
  void run(std::unique_lock<std::mutex>& lock, const Work& work, bool* busy) {
    *busy = true;
    ++running_;
    lock.unlock();
    if (work.body) work.body();
    lock.lock();
    --running_;
    *busy = false;
    if (work.ends != nullptr) *work.ends = true;
    changed_.notify_all();
  }

  std::condition_variable changed_;
  bool null_busy_ = false;
  size_t running_ = 0, blocked_ = 0;
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
  device().blocks[*at] = bytes;
  return cudaSuccess;
}

// Does not wait, though CUDA's functions may.
cudaError_t give_back(void* at) {
  device().forget(at);
  ::operator delete(at, std::align_val_t{256});
  return cudaSuccess;
}

cudaError_t put(cudaStream_t stream, Work work) {
  if (device().must_fail(simt::kEnqueued)) return fails(cudaErrorUnknown);
  device().add(stream, std::move(work));
  return cudaSuccess;
}

// Counts a call, which copies so many bytes.
void count(size_t simt::Counts::* calls, size_t bytes = 0) {
  std::lock_guard lock(device().mutex);
  ++(device().counts.*calls);
  device().counts.copied_bytes += bytes;
}

// A wait of the calling thread.
template <typename Wait>
cudaError_t waited(Wait&& wait) {
  count(&simt::Counts::waits);
  if (device().must_fail(simt::kWaits)) return fails(cudaErrorUnknown);
  wait();
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
  count(&Counts::launches);
  (void)put(stream, {std::move(work), nullptr, nullptr, nullptr, nullptr, 0});
}
size_t waiting() { return device().waiting(); }
size_t blocked_threads() { return device().blocked(); }
HeldStream::HeldStream(cudaStream_t stream) : stream_(stream) { device().set_held(stream, true); }
HeldStream::~HeldStream() { device().set_held(stream_, false); }
size_t allocations() { return device().allocations; }
void use_host_memory(const void* at, size_t bytes) {
  std::lock_guard lock(device().mutex);
  if (!device().is_registered(at, bytes)) die("a kernel uses host memory that is not registered");
  device().counts.bus_bytes += bytes;
}
size_t registrations() {
  std::lock_guard lock(device().mutex);
  return device().registered.size();
}
Counts counts() {
  std::lock_guard lock(device().mutex);
  return device().counts;
}

}  // namespace simt

size_t simt_device_allocations() { return device().device_allocations; }

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
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
  return waited([] { device().finish_all_of(current_device); });
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

cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned) {
  if (device().must_fail(simt::kRegistrations)) return fails(cudaErrorMemoryAllocation);
  std::lock_guard lock(device().mutex);
  auto& all = device().registered;
  auto* const first = static_cast<const std::byte*>(at);
  if (bytes == 0) return fails(cudaErrorInvalidValue);
  const auto next = all.lower_bound(first);
  const bool overlaps =
      (next != all.end() && next->first < first + bytes) || device().is_registered(at, 1);
  if (overlaps) return fails(cudaErrorHostMemoryAlreadyRegistered);
  all[first] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* at) {
  std::lock_guard lock(device().mutex);
  const bool was_there = device().registered.erase(static_cast<const std::byte*>(at)) == 1;
  return was_there ? cudaSuccess : fails(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void** on_device, void* at, unsigned) {
  if (device().must_fail(simt::kRegistrations)) return fails(cudaErrorMemoryAllocation);
  std::lock_guard lock(device().mutex);
  if (!device().is_registered(at, 1)) return fails(cudaErrorInvalidValue);
  *on_device = at;
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* at, int byte, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  return put(stream,
             {[=] { std::memset(at, byte, bytes); }, nullptr, nullptr, nullptr, nullptr, 0});
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  count(&simt::Counts::copies, bytes);
  return put(stream, {[=] { std::memcpy(to, from, bytes); }, nullptr, nullptr,
                      static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (device().must_fail(simt::kCreations)) return fails(cudaErrorMemoryAllocation);
  std::lock_guard lock(device().mutex);
  *stream = device().streams.emplace_back(new CUstream_st);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  device().finish([&] { return stream->idle(); });
  std::lock_guard lock(device().mutex);
  auto& all = device().streams;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == stream) all.erase(all.begin() + static_cast<std::ptrdiff_t>(i--));
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return waited([&] {
    if (stream != nullptr) device().finish([&] { return stream->idle(); });
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  count(&simt::Counts::stream_waits);
  if (device().must_fail(simt::kEnqueued)) return fails(cudaErrorUnknown);
  device().hold(stream, event);
  return cudaSuccess;
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
  count(&simt::Counts::records);
  if (device().must_fail(simt::kEnqueued)) return fails(cudaErrorUnknown);
  device().record(event, stream);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return waited([&] { device().wait(event); });
}
