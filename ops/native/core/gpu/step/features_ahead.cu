#include <cstring>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/step/features_ahead.h"

namespace hotrow {

void DeviceFeaturesAhead::copy(const std::vector<Feature>& features) {
  copied_.wait();  // the pinned memory may be read
  features_ = features;
  // visit(pointer to the array, its size in values) for each array.
  const auto each = [this](auto&& visit) {
    for (Feature& feature : features_) {
      const size_t keys = feature.segments.keys;
      visit(feature.keys, keys);
      if (feature.counts != nullptr) visit(feature.counts, keys);
      if (feature.segments.row_splits != nullptr) {
        visit(feature.segments.row_splits, feature.segments.samples + 1);
      }
      if (feature.segments.weights != nullptr) visit(feature.segments.weights, keys);
    }
  };
  DeviceArena sizes;
  each([&](auto& array, size_t count) {
    sizes.take<std::remove_const_t<std::remove_reference_t<decltype(*array)>>>(count);
  });
  pinned_.reserve(sizes.used());
  device_.reserve(sizes.used());
  DeviceArena from = pinned_.arena(), to = device_.arena();
  each([&](auto& array, size_t count) {
    using Value = std::remove_const_t<std::remove_reference_t<decltype(*array)>>;
    Value* const pinned = from.take<Value>(count);
    if (count > 0) std::memcpy(pinned, array, count * sizeof(Value));
    array = to.take<Value>(count);
  });
  used_.hold(stream_.get());
  copy_async(device_.data(), pinned_.data(), sizes.used(), stream_.get());
  copied_.record(stream_.get());
}

std::shared_ptr<DeviceFeaturesAhead> DeviceFeaturesPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    all_.push_back(std::make_unique<DeviceFeaturesAhead>());
    free_.push_back(all_.back().get());
  }
  DeviceFeaturesAhead* const taken = free_.back();
  free_.pop_back();
  return {taken, [this](DeviceFeaturesAhead* returned) {
            const std::lock_guard lock(mutex_);
            free_.push_back(returned);
          }};
}

size_t DeviceFeaturesPool::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const auto& one : all_) total += one->bytes();
  return total;
}

}  // namespace hotrow
