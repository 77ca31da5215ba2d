// A memory with a weaker order than this machine's, for kernels that run beside others without a
// lock.
//
// While a WeakMemory lives, a load of device_code.h may return any value that its location had,
// except those older than a value that the thread knows of. A thread knows its own stores, what it
// loaded, and what other threads knew that it met: at an ordered barrier, or by an acquire load (or
// a relaxed one, and then a fence) of what they released (or stored after a fence). So a fence or
// barrier that is missing, or in the wrong place, shows as a wrong result.
//
// The model is that of J. Kang et al., A promising semantics for relaxed-memory concurrency, 2017,
// without promises: it does not reorder a store with loads before it. Words are apart: a load of 8
// bytes may be torn. Atomic functions and plain loads and stores see the newest values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace simt {

enum class Order { kRelaxed, kAcquire, kRelease };

// One at a time; only one thread launches kernels meanwhile.
class WeakMemory {
 public:
  // seed: of the choice between values.
  explicit WeakMemory(uint64_t seed);
  ~WeakMemory();
  WeakMemory(const WeakMemory&) = delete;
  // Later launches run beside all earlier ones, not after them.
  void beside();
};

// --- for kernels and their machine ---------------------------------------------------------------

namespace weak {

bool on();
// bytes: 1, 2 or 4.
uint32_t load(const void* at, size_t bytes, Order order);
void store(void* at, size_t bytes, uint32_t value, Order order);
void fence();
void begin_launch();
void begin_thread();
void end_thread();
// Threads meet at `place`: each arrives, the first of them `first`, before one leaves.
void arrive(const void* place, bool first);
void leave(const void* place);

}  // namespace weak

template <typename T>
T load(const T* at, Order order) {
  if (!weak::on()) {
    return order == Order::kAcquire ? __atomic_load_n(at, __ATOMIC_ACQUIRE)
                                    : __atomic_load_n(at, __ATOMIC_RELAXED);
  }
  constexpr size_t kPiece = sizeof(T) < 4 ? sizeof(T) : 4;
  T value;
  for (size_t i = 0; i < sizeof(T); i += kPiece) {
    const uint32_t piece = weak::load(reinterpret_cast<const char*>(at) + i, kPiece, order);
    std::memcpy(reinterpret_cast<char*>(&value) + i, &piece, kPiece);
  }
  return value;
}

template <typename T>
void store(T* at, T value, Order order) {
  if (!weak::on()) {
    return order == Order::kRelease ? __atomic_store_n(at, value, __ATOMIC_RELEASE)
                                    : __atomic_store_n(at, value, __ATOMIC_RELAXED);
  }
  constexpr size_t kPiece = sizeof(T) < 4 ? sizeof(T) : 4;
  for (size_t i = 0; i < sizeof(T); i += kPiece) {
    uint32_t piece = 0;
    std::memcpy(&piece, reinterpret_cast<const char*>(&value) + i, kPiece);
    weak::store(reinterpret_cast<char*>(at) + i, kPiece, piece, order);
  }
}

}  // namespace simt
