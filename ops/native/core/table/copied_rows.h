// Copies of rows of one size, first in, first out, in pieces that never move: growing copies
// nothing and takes no more than a piece beyond what is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/room.h"

namespace hotrow {

// Not synchronized. Copies are numbered from 0 in the order in which they were added.
class CopiedRows {
 public:
  // row: (stride) bytes, the same for all copies; place: where the row lives. Returns the number of
  // the copy.
  uint32_t add(const std::byte* row, size_t stride, uint32_t place) {
    const size_t piece = end_ >> kShift;
    if (piece == pieces_.size()) {
      make_room(pieces_);
      pieces_.emplace_back(new std::byte[(stride + sizeof(place)) << kShift]);
      bytes_ += (stride + sizeof(place)) << kShift;
    }
    std::byte* data = pieces_[piece].get();
    std::memcpy(data + (end_ & kMask) * stride, row, stride);
    std::memcpy(data + (stride << kShift) + (end_ & kMask) * sizeof(place), &place, sizeof(place));
    return static_cast<uint32_t>(end_++);
  }
  const std::byte* at(uint32_t number, size_t stride) const {
    return pieces_[number >> kShift].get() + (number & kMask) * stride;
  }
  bool empty() const { return first_ == end_; }
  uint32_t first() const { return static_cast<uint32_t>(first_); }
  uint32_t place_of_first(size_t stride) const {
    uint32_t place;
    std::memcpy(
        &place,
        pieces_[first_ >> kShift].get() + (stride << kShift) + (first_ & kMask) * sizeof(place),
        sizeof(place));
    return place;
  }
  // Frees a piece once its last copy is dropped. After the last of all, numbers begin at 0 again.
  void drop_first(size_t stride) {
    if (++first_ == end_) return clear();
    if ((first_ & kMask) != 0) return;
    pieces_[(first_ >> kShift) - 1].reset();
    bytes_ -= (stride + sizeof(uint32_t)) << kShift;
  }
  // Bytes of memory held.
  size_t bytes() const { return bytes_ + pieces_.capacity() * sizeof(pieces_[0]); }
  void clear() {
    std::vector<std::unique_ptr<std::byte[]>>().swap(pieces_);
    first_ = end_ = bytes_ = 0;
  }

 private:
  static constexpr unsigned kShift = 6;  // rows of a piece
  static constexpr size_t kMask = (size_t{1} << kShift) - 1;

  std::vector<std::unique_ptr<std::byte[]>> pieces_;
  size_t first_ = 0;  // the oldest copy that was not dropped
  size_t end_ = 0;
  size_t bytes_ = 0;
};

}  // namespace hotrow
