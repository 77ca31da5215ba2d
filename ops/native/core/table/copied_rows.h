// Copies of rows of one size, in pieces that never move: growing copies nothing and takes no more
// than a piece beyond what is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace hotrow {

// Not synchronized.
class CopiedRows {
 public:
  // row: (stride) bytes. Returns the number of the copy; they count from 0.
  uint32_t add(const std::byte* row, size_t stride) {
    const size_t piece = count_ >> kShift;
    if (piece == pieces_.size()) {
      pieces_.emplace_back(new std::byte[stride << kShift]);
      bytes_ += stride << kShift;
    }
    std::memcpy(pieces_[piece].get() + (count_ & kMask) * stride, row, stride);
    return static_cast<uint32_t>(count_++);
  }
  const std::byte* at(uint32_t number, size_t stride) const {
    return pieces_[number >> kShift].get() + (number & kMask) * stride;
  }
  // Bytes of memory held.
  size_t bytes() const { return bytes_ + pieces_.capacity() * sizeof(pieces_[0]); }
  void clear() {
    std::vector<std::unique_ptr<std::byte[]>>().swap(pieces_);
    count_ = bytes_ = 0;
  }

 private:
  static constexpr unsigned kShift = 6;  // rows of a piece
  static constexpr size_t kMask = (size_t{1} << kShift) - 1;

  std::vector<std::unique_ptr<std::byte[]>> pieces_;
  size_t count_ = 0;
  size_t bytes_ = 0;
};

}  // namespace hotrow
