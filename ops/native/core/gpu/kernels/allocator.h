// The source of a GPU's memory: CUDA, or an allocator that the caller registered.
#pragma once

#include "core/base/c_types.h"

namespace hotrow {

// From now on the core takes memory from this allocator; with a null `allocate`, from CUDA. Fails
// with InvalidArgument when only one of the functions is null, or the device's number is negative.
void set_allocator(int device, const hr_device_allocator& allocator);

// The allocator of a device; null functions: CUDA's.
hr_device_allocator allocator_of(int device);

}  // namespace hotrow
