// State as bytes with a checksum at the end. It is written piece by piece, and every length is
// checked when it is read. Little-endian, as this machine is.
#pragma once

#include <farmhash.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/base/status.h"

namespace hotrow {

class SealedBytesWriter {
 public:
  template <typename T>
  void put(const T& value) {
    put_array(&value, 1);
  }
  // values: (count)
  template <typename T>
  void put_array(const T* values, size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count == 0) return;
    const auto* bytes = reinterpret_cast<const uint8_t*>(values);
    bytes_.insert(bytes_.end(), bytes, bytes + count * sizeof(T));
  }
  void reserve(size_t bytes) { bytes_.reserve(bytes + sizeof(uint64_t)); }
  // The bytes with their checksum; the writer is empty afterwards.
  std::vector<uint8_t> seal() {
    put(util::Fingerprint64(reinterpret_cast<const char*>(bytes_.data()), bytes_.size()));
    return std::move(bytes_);
  }

 private:
  std::vector<uint8_t> bytes_;
};

// Every method fails with DataLoss when the bytes do not hold the requested values.
class SealedBytesReader {
 public:
  // data: (size), as the writer sealed it; must outlive the reader. what: its name in errors.
  SealedBytesReader(const char* what, const uint8_t* data, size_t size) : what_(what), data_(data) {
    uint64_t checksum = 0;
    if (size < sizeof checksum) damaged("is too short");
    left_ = size - sizeof checksum;
    std::memcpy(&checksum, data + left_, sizeof checksum);
    if (checksum != util::Fingerprint64(reinterpret_cast<const char*>(data), left_)) {
      damaged("has a wrong checksum");
    }
  }

  template <typename T>
  T get() {
    T value;
    get_array(&value, 1);
    return value;
  }
  // values: (count)
  template <typename T>
  void get_array(T* values, size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > left_ / sizeof(T)) damaged("ends early");
    if (count == 0) return;
    std::memcpy(values, data_, count * sizeof(T));
    data_ += count * sizeof(T);
    left_ -= count * sizeof(T);
  }
  // Bytes not read yet.
  size_t left() const { return left_; }
  void expect_end() const {
    if (left_ != 0) damaged("is too long");
  }
  [[noreturn]] void damaged(const char* how) const {
    fail(Code::kDataLoss, "the saved %s is damaged: it %s", what_, how);
  }

 private:
  const char* what_;
  const uint8_t* data_;
  size_t left_ = 0;
};

}  // namespace hotrow
