#include "core/gpu/kernels/allocator.h"

#include <map>
#include <mutex>

#include "core/base/status.h"

namespace hotrow {
namespace {

struct Allocators {
  std::mutex mutex;
  std::map<int, hr_device_allocator> by_device;
};

Allocators& allocators() {
  // Never destroyed: tables may be destroyed while the process ends.
  static Allocators* all = new Allocators();
  return *all;
}

}  // namespace

void set_allocator(int device, const hr_device_allocator& allocator) {
  if (device < 0) fail(Code::kInvalidArgument, "an allocator of GPU %d; 0 is the first", device);
  if ((allocator.allocate == nullptr) != (allocator.release == nullptr)) {
    fail(Code::kInvalidArgument, "an allocator of GPU %d with only one of allocate and release",
         device);
  }
  std::lock_guard lock(allocators().mutex);
  allocators().by_device[device] = allocator;
}

hr_device_allocator allocator_of(int device) {
  std::lock_guard lock(allocators().mutex);
  const auto found = allocators().by_device.find(device);
  return found == allocators().by_device.end() ? hr_device_allocator{} : found->second;
}

}  // namespace hotrow
