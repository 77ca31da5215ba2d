#include "core/slab_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "core/status.h"

namespace hotrow {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallest = size_t{64} << 10;
constexpr size_t kLargest = size_t{64} << 20;
constexpr size_t kAlignment = 64;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

size_t machine_memory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void SlabMemory::map(size_t bytes) {
  // A slab grows with the table, so that small tables stay small. Pages that nobody touched
  // take no memory.
  size_t size = std::clamp(taken_, kSmallest, kLargest);
  size = std::max(size, bytes);
  const bool huge = size >= kHugePage;
  size = round_up(size, huge ? kHugePage : 4096);
  const size_t mapped = huge ? size + kHugePage : size;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    fail(Code::kResourceExhausted, "no memory for %zu more bytes of embedding rows", size);
  }
  slabs_.push_back({static_cast<std::byte*>(mapping), mapped});
  uintptr_t start = reinterpret_cast<uintptr_t>(mapping);
  if (huge) {
    start = round_up(start, kHugePage);
    // Refused on some systems; then pages are small.
    (void)madvise(reinterpret_cast<void*>(start), size, MADV_HUGEPAGE);
  }
  next_ = reinterpret_cast<std::byte*>(start);
  left_ = size;
}

std::byte* SlabMemory::take(size_t bytes) {
  bytes = round_up(bytes, kAlignment);
  std::lock_guard lock(mutex_);
  if (left_ < bytes) map(bytes);
  std::byte* piece = next_;
  next_ += bytes;
  left_ -= bytes;
  taken_ += bytes;
  return piece;
}

size_t SlabMemory::bytes() const {
  std::lock_guard lock(mutex_);
  return taken_;
}

void SlabMemory::clear() {
  std::lock_guard lock(mutex_);
  for (const Slab& slab : slabs_) munmap(slab.mapping, slab.mapped);
  slabs_.clear();
  next_ = nullptr;
  left_ = taken_ = 0;
}

}  // namespace hotrow
