// Memory of a table: pieces of large mappings with huge pages. Pieces never move.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "core/base/mapping.h"

namespace hotrow {

// Bytes of memory that this machine has.
size_t machine_memory();

// Learns of the mappings of a SlabMemory, one call at a time.
class SlabListener {
 public:
  virtual ~SlabListener() = default;
  // If it fails, the mapping is undone.
  virtual void add_slab(std::byte* at, size_t bytes) = 0;
  // Called before the mapping goes.
  virtual void remove_slab(std::byte* at) noexcept = 0;
};

// All pieces are freed at once. Safe from several threads.
class SlabMemory {
 public:
  SlabMemory() = default;
  ~SlabMemory() { clear(); }
  SlabMemory(const SlabMemory&) = delete;

  // Passes it the mappings that there are, and all later ones. Null: passes the last listener the
  // end of all. Fails as add_slab; then there is no listener.
  void set_listener(SlabListener* listener);

  // 64-byte aligned, all zero. Fails with ResourceExhausted.
  std::byte* take(size_t bytes);
  // Bytes of all pieces.
  size_t bytes() const;
  void clear();

 private:
  void map(size_t bytes);
  // The first `count` mappings leave the listener.
  void remove_from_listener(size_t count) noexcept;

  mutable std::mutex mutex_;
  std::vector<Mapping> slabs_;
  SlabListener* listener_ = nullptr;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
  size_t taken_ = 0;
};

}  // namespace hotrow
