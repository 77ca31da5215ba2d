// Small arrays that describe a call to its kernels. They lie in one block of the device's memory
// and go there together, in the arguments of one kernel (kernels/upload.cu). A copy from pinned
// memory would be one command as well, but its memory may only be written again when the device has
// read it, and a call that does not wait cannot know that.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "core/gpu/kernels/memory.h"

namespace hotrow {

class DeviceDescribed {
 public:
  static constexpr size_t kAlignment = 16;

  DeviceDescribed() = default;
  // Room for the arrays of a call: at most these bytes for each feature and each table.
  static size_t bytes_for(size_t features, size_t tables) {
    return features * 256 + tables * 512 + 512;
  }
  // memory: on the device.
  DeviceDescribed(std::byte* memory, size_t bytes) : at_(memory), room_(bytes) {}

  // Returns where the device will have `count` values, after `upload`.
  template <typename T>
  T* add(const T* values, size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0);
    static_assert(alignof(T) <= kAlignment);
    const size_t first = end(), bytes = count * sizeof(T);
    if (first + bytes > room_) {
      fail(Code::kInternal, "%zu bytes describe a call; at most %zu", first + bytes, room_);
    }
    waiting_.resize((first - sent_ + bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (bytes > 0) std::memcpy(waiting_.data() + (first - sent_), values, bytes);
    return reinterpret_cast<T*>(at_ + first);
  }
  template <typename T>
  T* add(const std::vector<T>& values) {
    return add(values.data(), values.size());
  }
  // Work that comes later on the stream finds what was added.
  void upload(DeviceStream stream);

 private:
  size_t end() const { return sent_ + waiting_.size(); }

  std::byte* at_ = nullptr;
  size_t room_ = 0, sent_ = 0;
  std::vector<std::byte> waiting_;  // behind what was sent
};

}  // namespace hotrow
