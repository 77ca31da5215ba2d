// An array that grows while it is read: elements never move, and nothing is copied.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/slab_memory.h"

namespace hotrow {

// Elements lie in blocks: 16 of 256, then 16 of twice as many, and so on. A block is allocated with
// its first element, so at most a 16th of the memory is unused. T: a type for which zero bytes are
// a value, such as an atomic number.
template <typename T>
class GrowingArray {
 public:
  GrowingArray() = default;
  GrowingArray(const GrowingArray&) = delete;

  // The element, or null where its block is not allocated. Safe while another thread calls `make`.
  T* find(uint32_t index) const {
    const Spot spot = spot_of(index);
    T* block = blocks_[spot.block].load(std::memory_order_acquire);
    return block == nullptr ? nullptr : block + spot.row;
  }
  // An element that was made.
  T& operator[](uint32_t index) const {
    const Spot spot = spot_of(index);
    return blocks_[spot.block].load(std::memory_order_acquire)[spot.row];
  }
  // The element; zeros when it is new. One thread at a time. Fails with ResourceExhausted.
  T& make(uint32_t index, SlabMemory& memory) {
    const Spot spot = spot_of(index);
    T* block = blocks_[spot.block].load(std::memory_order_relaxed);
    if (block == nullptr) {
      block = reinterpret_cast<T*>(memory.take(spot.block_size * sizeof(T)));
      blocks_[spot.block].store(block, std::memory_order_release);
    }
    return block[spot.row];
  }
  // Drops all elements; the caller clears their memory. No thread may read meanwhile.
  void clear() {
    for (auto& block : blocks_) block.store(nullptr, std::memory_order_relaxed);
  }

 private:
  static constexpr unsigned kFirstShift = 8;
  static constexpr unsigned kBlockBits = 4;
  static constexpr size_t kBlocks = (32 - kFirstShift - kBlockBits + 1) * (size_t{1} << kBlockBits);

  struct Spot {
    size_t block;
    size_t row;  // in the block
    size_t block_size;
  };
  static Spot spot_of(uint32_t index) {
    const uint64_t r = index + (uint64_t{1} << (kFirstShift + kBlockBits));
    const unsigned shift = 63 - kBlockBits - static_cast<unsigned>(__builtin_clzll(r));
    const size_t size = size_t{1} << shift;
    const size_t block = ((shift - kFirstShift) << kBlockBits) + (r >> shift);
    return {block - (size_t{1} << kBlockBits), r & (size - 1), size};
  }

  std::array<std::atomic<T*>, kBlocks> blocks_{};
};

}  // namespace hotrow
