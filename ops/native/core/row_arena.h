// A growing arena of equal pieces that never move.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace hotrow {

// Pieces of `width` floats in chunks of about 1 MiB; piece i stays where it is for ever.
class RowArena {
 public:
  explicit RowArena(size_t width) : width_(width) {
    while ((rows_per_chunk_ * 2) * width * sizeof(float) <= (size_t{1} << 20)) {
      rows_per_chunk_ *= 2;
      ++shift_;
    }
  }

  float* at(size_t row) {
    return chunks_[row >> shift_].get() + (row & (rows_per_chunk_ - 1)) * width_;
  }
  const float* at(size_t row) const {
    return chunks_[row >> shift_].get() + (row & (rows_per_chunk_ - 1)) * width_;
  }

  // Makes room for `rows` pieces; new ones hold no particular value.
  void reserve(size_t rows) {
    while (chunks_.size() << shift_ < rows) {
      chunks_.emplace_back(new float[rows_per_chunk_ * width_]);
    }
  }

  size_t bytes() const { return chunks_.size() * rows_per_chunk_ * width_ * sizeof(float); }
  void clear() { chunks_.clear(); }

 private:
  size_t width_;
  size_t rows_per_chunk_ = 1;
  unsigned shift_ = 0;
  std::vector<std::unique_ptr<float[]>> chunks_;
};

}  // namespace hotrow
