// Memory that is freed while copies use it.
#include "core/gpu/kernels/runtime.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "tests/gpu/device_array.h"

namespace hotrow {
namespace {

constexpr size_t kBytes = 1 << 16;

// Copies `from`, (kBytes), full of 7, to the device; does not wait.
void send_sevens(PinnedBlock* from, const DeviceBlock& to, DeviceStream stream) {
  from->reserve(kBytes);
  std::fill_n(from->data(), kBytes, std::byte{7});
  copy_async(to.data(), from->data(), kBytes, stream);
}

std::vector<std::byte> read_back(const DeviceBlock& from, DeviceStream stream) {
  must(cudaStreamSynchronize(stream));
  return read_device(from.data(), kBytes);
}

}  // namespace

TEST_CASE("device memory: a block that grows waits for the copies that use it") {
  const std::vector<std::byte> sevens(kBytes, std::byte{7});
  DeviceBlock device;
  device.reserve(kBytes);
  const OwnStream stream;
  PinnedBlock pinned;
  send_sevens(&pinned, device, stream.get());
  pinned.reserve(2 * pinned.bytes());
  CHECK(read_back(device, stream.get()) == sevens);

  copy_async(pinned.data(), device.data(), kBytes, stream.get());
  device.reserve(2 * device.bytes());
  CHECK(std::equal(sevens.begin(), sevens.end(), pinned.data()));
}

TEST_CASE("device memory: a block of a call that fails waits for the copies that use it") {
  DeviceBlock device;
  device.reserve(kBytes);
  const OwnStream stream;
  try {
    PinnedBlock pinned;
    send_sevens(&pinned, device, stream.get());
    throw std::runtime_error("the call failed");
  } catch (const std::runtime_error&) {
  }
  CHECK(read_back(device, stream.get()) == std::vector<std::byte>(kBytes, std::byte{7}));
}

TEST_CASE("device memory: a block that moves keeps its memory and its contents") {
  const OwnStream stream;
  DeviceBlock device;
  device.reserve(kBytes);
  PinnedBlock pinned;
  send_sevens(&pinned, device, stream.get());
  const std::byte* const at = device.data();
  const DeviceBlock moved = std::move(device);
  CHECK(moved.data() == at);
  CHECK(read_back(moved, stream.get()) == std::vector<std::byte>(kBytes, std::byte{7}));
}

}  // namespace hotrow
