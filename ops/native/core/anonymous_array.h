// A zeroed array in anonymous memory: untouched pages cost nothing, and freeing returns them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "core/status.h"

namespace hotrow {

// T: any type for which zero bytes are a value.
template <typename T>
class AnonymousArray {
 public:
  AnonymousArray() = default;
  // `size` zeros. Fails with ResourceExhausted.
  explicit AnonymousArray(size_t size) {
    if (size == 0) return;
    void* data = MAP_FAILED;
    if (size <= static_cast<size_t>(-1) / 2 / sizeof(T)) {
      data = mmap(nullptr, size * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
    }
    if (data == MAP_FAILED) {
      fail(Code::kResourceExhausted, "no memory for an array of %zu x %zu bytes", size, sizeof(T));
    }
    data_ = static_cast<T*>(data);
    size_ = size;
  }
  AnonymousArray(AnonymousArray&& other) noexcept { swap(other); }
  AnonymousArray& operator=(AnonymousArray&& other) noexcept {
    AnonymousArray(std::move(other)).swap(*this);
    return *this;
  }
  ~AnonymousArray() {
    if (data_ != nullptr) munmap(data_, bytes());
  }

  void swap(AnonymousArray& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hotrow
