// Steps of an update on the device, for tests.
#pragma once

#include <vector>

#include "core/gpu/kernels/update.h"
#include "tests/gpu/device_array.h"

namespace hotrow {

class StepsOnDevice {
 public:
  explicit StepsOnDevice(const std::vector<DeviceStep>& steps)
      : memory_(DeviceDescribed::bytes_for(0, steps.size())) {
    DeviceDescribed to(memory_.data(), memory_.size());
    there_ = describe_steps(steps.data(), steps.size(), &to);
    to.upload(kStream);
  }
  const DescribedSteps& there() const { return there_; }

 private:
  DeviceArray<std::byte> memory_;
  DescribedSteps there_;
};

}  // namespace hotrow
