// Memory of a table: pieces of large mappings with huge pages. Pieces never move.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "core/base/mapping.h"

namespace hotrow {

// Bytes of memory that this machine has.
size_t machine_memory();

// All pieces are freed at once. Safe from several threads.
class SlabMemory {
 public:
  SlabMemory() = default;
  SlabMemory(const SlabMemory&) = delete;

  // 64-byte aligned, all zero. Fails with ResourceExhausted.
  std::byte* take(size_t bytes);
  // Bytes of all pieces.
  size_t bytes() const;
  void clear();

 private:
  void map(size_t bytes);

  mutable std::mutex mutex_;
  std::vector<Mapping> slabs_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
  size_t taken_ = 0;
};

}  // namespace hotrow
