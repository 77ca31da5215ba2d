// Features that came to an owner by the host's messages, on their way to its GPU before their batch
// is trained.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/gpu/kernels/runtime.h"
#include "core/kernels/feature.h"

namespace hotrow {

class DeviceFeaturesAhead {
 public:
  // Copies the arrays of features in the host's memory; returns when they may change. The device is
  // current in the calling thread.
  void copy(const std::vector<Feature>& features);
  // The features, with their arrays on the device, for later work on the stream.
  const std::vector<Feature>& use(DeviceStream stream) const {
    copied_.hold(stream);
    return features_;
  }
  // Later work on the stream does not use them.
  void release(DeviceStream stream) { used_.record(stream); }
  size_t bytes() const { return device_.bytes(); }

 private:
  OwnStream stream_;
  DeviceEvent copied_, used_;
  PinnedBlock pinned_;
  DeviceBlock device_;
  std::vector<Feature> features_;
};

// Those of a layer, in its first table's tier; they return to it when no batch has them.
class DeviceFeaturesPool {
 public:
  std::shared_ptr<DeviceFeaturesAhead> take();
  size_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceFeaturesAhead>> all_;
  std::vector<DeviceFeaturesAhead*> free_;
};

}  // namespace hotrow
