// The fingerprint of a batch on the device: the sibling of kernels/feature_fingerprint.h.
#pragma once

#include "core/gpu/kernels/memory.h"
#include "core/kernels/feature.h"

namespace hotrow {

size_t device_fingerprint_scratch(size_t features);
// Writes fingerprint_of(features) to *out, on the device. features: (count) on the host; their
// arrays are on the device.
void device_fingerprint(const Feature* features, size_t count, uint64_t* out, void* scratch,
                        size_t bytes, DeviceStream stream);

}  // namespace hotrow
