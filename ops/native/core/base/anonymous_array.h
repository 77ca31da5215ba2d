// An array of zeros in anonymous memory.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>

#include "core/base/mapping.h"

namespace hotrow {

// T: any type for which zero bytes are a value.
template <typename T>
class AnonymousArray {
 public:
  AnonymousArray() = default;
  // `size` zeros. Fails with ResourceExhausted.
  explicit AnonymousArray(size_t size)
      : mapping_(size <= kMost / sizeof(T) ? size * sizeof(T) : kMost, "an array"), size_(size) {}
  AnonymousArray(AnonymousArray&& other) noexcept { swap(other); }
  AnonymousArray& operator=(AnonymousArray&& other) noexcept {
    AnonymousArray(std::move(other)).swap(*this);
    return *this;
  }

  void swap(AnonymousArray& other) noexcept {
    mapping_.swap(other.mapping_);
    std::swap(size_, other.size_);
  }
  T* data() { return reinterpret_cast<T*>(mapping_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(mapping_.data()); }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }

 private:
  static constexpr size_t kMost = std::numeric_limits<size_t>::max();

  Mapping mapping_;
  size_t size_ = 0;
};

}  // namespace hotrow
