// Calls of CUDA that fail: their error is the caller's, and no later launch's.
#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "core/gpu/kernels/keys.h"
#include "core/gpu/kernels/runtime.h"
#include "tests/error_code.h"
#include "tests/gpu/device_array.h"

namespace hotrow {
namespace {

// More than any device or host has.
constexpr size_t kTooMuch = size_t{1} << 50;

// Launches a kernel, and returns whether it ran.
bool launched() {
  std::byte line{};
  const DeviceArray<std::byte*> none(std::vector<std::byte*>{nullptr});
  const DeviceArray<std::byte*> lines(std::vector<std::byte*>{&line});
  const DeviceArray<uint32_t> one(std::vector<uint32_t>{1});
  DeviceProbed before, probed;
  before.lines = none.data();
  probed.lines = lines.data();
  device_drop_absent(before, one.data(), 1, probed, kStream);
  return lines.read()[0] == nullptr;
}

}  // namespace

TEST_CASE("device memory: what is not there fails by name, and no later launch reports it") {
  DeviceBlock block;
  PinnedBlock pinned;
  CHECK(error_code([&] { block.reserve(kTooMuch); }) == Code::kResourceExhausted);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(launched());
  CHECK(error_code([&] { pinned.reserve(kTooMuch); }) == Code::kResourceExhausted);
  CHECK(launched());
  block.reserve(1);
  CHECK(block.data() != nullptr);
}

TEST_CASE("device memory: what an allocator asked CUDA for in vain, no later launch reports") {
  const auto ask = [](void*, size_t) {
    void* at = nullptr;
    (void)cudaMalloc(&at, kTooMuch);
    return at;
  };
  set_allocator(0, {nullptr, ask, [](void*, void*) {}});
  DeviceBlock block;
  CHECK(error_code([&] { block.reserve(1); }) == Code::kResourceExhausted);
  set_allocator(0, {});
  CHECK(launched());
}

#if defined(HOTROW_SIMT)
TEST_CASE("emulated CUDA: every n-th call fails and leaves its error, until it is read") {
  void* at[6] = {};
  {
    const simt::Failures failures(simt::kAllocations, 1, 3);
    for (size_t i = 0; i < 6; ++i) {
      CAPTURE(i);
      const bool fails = i == 1 || i == 4;
      const cudaError_t error = i % 2 == 0 ? cudaMalloc(&at[i], 8) : cudaMallocHost(&at[i], 8);
      CHECK(error == (fails ? cudaErrorMemoryAllocation : cudaSuccess));
      CHECK((at[i] == nullptr) == fails);
    }
    CHECK(failures.count() == 2);
  }
  std::thread([] { CHECK(cudaPeekAtLastError() == cudaSuccess); }).join();
  CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
  CHECK(error_code([] { launched(); }) == Code::kResourceExhausted);
  CHECK(cudaGetLastError() == cudaSuccess);
  for (void* each : at) {
    if (each != nullptr) CHECK(cudaFree(each) == cudaSuccess);
  }
}

TEST_CASE("emulated CUDA: registrations, streams, events, launches and waits fail, too") {
  int memory = 0;
  const auto registers = [&] {
    check(cudaHostRegister(&memory, sizeof(memory), cudaHostRegisterMapped), "register");
    void* there = nullptr;
    const cudaError_t found = cudaHostGetDevicePointer(&there, &memory, 0);
    const cudaError_t ended = cudaHostUnregister(&memory);
    check(found, "address");
    CHECK(there == &memory);
    check(ended, "unregister");
  };
  const auto makes = [] {
    const OwnStream stream;
    DeviceEvent event;
  };
  const auto launches = [] { launched(); };
  const auto waits = [] {
    const OwnStream stream;
    DeviceEvent event;
    event.record(stream.get());
    event.wait();
  };
  const auto fails = [](unsigned calls, size_t number, auto&& call) {
    const simt::Failures failures(calls, number);
    const Code code = error_code(call);
    CHECK(failures.count() == 1);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    return code;
  };
  CHECK(fails(simt::kRegistrations, 0, registers) == Code::kResourceExhausted);
  CHECK(fails(simt::kRegistrations, 1, registers) == Code::kResourceExhausted);
  CHECK(fails(simt::kCreations, 0, makes) == Code::kResourceExhausted);
  CHECK(fails(simt::kCreations, 1, makes) == Code::kResourceExhausted);
  CHECK(fails(simt::kEnqueued, 6, launches) == Code::kInternal);  // after fills and copies
  CHECK(fails(simt::kWaits, 0, waits) == Code::kInternal);
  registers();
  CHECK(error_code([&] { check(cudaHostUnregister(&memory), "unregister"); }) == Code::kInternal);
  waits();
}

TEST_CASE(
    "emulated CUDA: registered memory does not overlap, and what is not registered has no "
    "address") {
  std::vector<char> memory(300);
  void* there = nullptr;
  CHECK(cudaHostRegister(memory.data() + 100, 100, cudaHostRegisterMapped) == cudaSuccess);
  for (const size_t first : {50, 100, 150, 199}) {
    CAPTURE(first);
    CHECK(cudaHostRegister(memory.data() + first, 60, cudaHostRegisterMapped) ==
          cudaErrorHostMemoryAlreadyRegistered);
  }
  CHECK(cudaHostGetDevicePointer(&there, memory.data() + 199, 0) == cudaSuccess);
  CHECK(cudaHostGetDevicePointer(&there, memory.data() + 200, 0) == cudaErrorInvalidValue);
  CHECK(cudaHostGetDevicePointer(&there, memory.data() + 99, 0) == cudaErrorInvalidValue);
  CHECK(cudaHostRegister(memory.data(), 100, cudaHostRegisterMapped) == cudaSuccess);
  CHECK(cudaHostRegister(memory.data() + 200, 100, cudaHostRegisterMapped) == cudaSuccess);
  CHECK(cudaHostUnregister(memory.data() + 150) == cudaErrorHostMemoryNotRegistered);
  for (const size_t first : {0, 100, 200}) {
    CHECK(cudaHostUnregister(memory.data() + first) == cudaSuccess);
  }
  CHECK(simt::registrations() == 0);
  forget_last_error();
}

TEST_CASE("device events: where there is no record, the thread waits for the stream's work") {
  const OwnStream stream, other;
  DeviceEvent event;
  const DeviceArray<uint32_t> value(std::vector<uint32_t>{1}), two(std::vector<uint32_t>{2});
  copy_async(value.data(), two.data(), 1, stream.get());
  {
    const simt::Failures failures(simt::kEnqueued, 0);
    event.record_or_wait(stream.get());
    CHECK(failures.count() == 1);
  }
  event.hold(other.get());
  CHECK(value.read()[0] == 2);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}
#endif

}  // namespace hotrow
