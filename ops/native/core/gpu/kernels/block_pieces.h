// Pieces of work of different sizes in one launch: a piece has the blocks [first_block, that of the
// next piece).
#pragma once

#include <limits>

#include "core/gpu/kernels/device_code.h"

namespace hotrow {

// The piece of this block.
template <typename Piece>
__device__ inline uint32_t find_block(const Piece* pieces, uint32_t count) {
  return find_last(count, blockIdx.x, [&](unsigned p) { return pieces[p].first_block; });
}

// Numbers the blocks of a launch.
class BlockNumbers {
 public:
  // The first of the next `count`.
  uint32_t next(uint64_t count) {
    const uint64_t first = blocks_;
    blocks_ += count;
    if (blocks_ > uint64_t{std::numeric_limits<int32_t>::max()}) {
      fail(Code::kInvalidArgument, "messages too large for one launch");
    }
    return static_cast<uint32_t>(first);
  }
  size_t count() const { return blocks_; }

 private:
  uint64_t blocks_ = 0;
};

}  // namespace hotrow
