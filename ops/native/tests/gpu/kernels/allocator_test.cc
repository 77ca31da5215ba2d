// Tables whose memory on a GPU comes from an allocator like a framework's, on any of the GPUs.
#include "core/gpu/kernels/allocator.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/gpu/step/layer.h"
#include "tests/error_code.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/layer_sides.h"
#include "tests/one_table.h"

namespace hotrow {
namespace {

// Makes a GPU current in the calling thread during its lifetime.
class OnGpu {
 public:
  explicit OnGpu(int device) {
    must(cudaGetDevice(&before_));
    must(cudaSetDevice(device));
  }
  ~OnGpu() { (void)cudaSetDevice(before_); }
  OnGpu(const OnGpu&) = delete;

 private:
  int before_ = 0;
};

std::unique_ptr<Stream> stream_on(int device) {
  const OnGpu there(device);
  return std::make_unique<Stream>();
}

// Returns memory that work on its own stream will still write, and keeps writing to freed memory:
// both are legal for a framework that uses memory on one stream only.
class Framework {
 public:
  explicit Framework(int device) : device_(device), stream_(stream_on(device)) {
    const hr_device_allocator allocator = {this, &Framework::allocate, &Framework::release};
    set_allocator(device, allocator);
  }
  ~Framework() {
    set_allocator(device_, {});
    const OnGpu here(device_);
    must(cudaStreamSynchronize(stream_->get()));
    for (const Piece& piece : pieces_) (void)cudaFree(piece.at);
  }
  Framework(const Framework&) = delete;

  size_t most = ~size_t{0};  // bytes that it has
  size_t used = 0;
  size_t taken = 0, given_back = 0;  // pieces

 private:
  struct Piece {
    void* at;
    size_t bytes;
    bool free;
  };
  static void* allocate(void* context, size_t bytes) {
    return static_cast<Framework*>(context)->allocate(bytes);
  }
  void* allocate(size_t bytes) {
    const OnGpu here(device_);
    if (used + bytes > most) return nullptr;
    ++taken;
    used += bytes;
    for (Piece& piece : pieces_) {
      if (!piece.free || piece.bytes < bytes) continue;
      piece.free = false;
      used += piece.bytes - bytes;
      return piece.at;
    }
    void* at = nullptr;
    must(cudaMalloc(&at, bytes));
    must(cudaMemsetAsync(at, 0x5a, bytes, stream_->get()));
    pieces_.push_back({at, bytes, false});
    return at;
  }
  static void release(void* context, void* at) { static_cast<Framework*>(context)->release(at); }
  void release(void* at) {
    const OnGpu here(device_);
    for (Piece& piece : pieces_) {
      if (piece.at != at) continue;
      REQUIRE(!piece.free);
      piece.free = true;
      used -= piece.bytes;
      ++given_back;
      must(cudaMemsetAsync(at, 0xc3, piece.bytes, stream_->get()));
      return;
    }
    FAIL("memory of another allocator");
  }

  const int device_;
  const std::unique_ptr<Stream> stream_;
  std::vector<Piece> pieces_;
};

TableOptions options_of(int gpu) {
  TableOptions options;
  options.width = 6;
  options.init.kind = InitKind::kUniform;
  options.init.scale = 0.1f;
  options.optimizer.kind = OptimizerKind::kAdam;
  if (gpu < 0) return options;
  options.cache.rows = 100;
  options.cache.device = CacheDevice::kGpu;
  options.cache.gpu = gpu;
  options.cache.piece_bytes = 2000;
  return options;
}

// The inputs of a step of a table on a GPU, and its expected results.
struct Pending {
  std::unique_ptr<DeviceArray<int64_t>> keys;
  std::unique_ptr<DeviceArray<float>> pooled, gradients;
  std::vector<float> expected;
  bool holds() const { return pooled->read() == expected; }
};

// One step of a table on each side, with the same keys and gradients; no thread waits for it.
Pending step_both(Table& plain, Table& tiered, size_t keys, uint64_t seed, DeviceStream stream) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> values(keys);
  for (int64_t& key : values) key = static_cast<int64_t>(random() % 400);
  std::vector<float> gradients(keys * plain.width()), rows(gradients.size());
  for (float& g : gradients) g = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  BackwardOptions options;
  options.what = Backward::kUpdate;
  const LayerCall host = call_of(plain, values);
  options.ticket = forward(host, true, {rows.data()}, nullptr);
  backward(host, {gradients.data()}, options);

  Pending pending = {std::make_unique<DeviceArray<int64_t>>(values),
                     std::make_unique<DeviceArray<float>>(rows.size()),
                     std::make_unique<DeviceArray<float>>(gradients), rows};
  LayerCall device = call_of(tiered, values);
  device.features[0].keys = pending.keys->data();
  options.ticket = device_forward(device, true, {pending.pooled->data()}, nullptr, stream);
  device_backward(device, {pending.gradients->data()}, options, stream);
  return pending;
}

void check_step(Table& plain, Table& tiered, size_t keys, uint64_t seed, DeviceStream stream) {
  const Pending pending = step_both(plain, tiered, keys, seed, stream);
  must(cudaStreamSynchronize(stream));
  REQUIRE(pending.holds());
}

void check_same(const Table& plain, const Table& tiered) {
  REQUIRE(exported(plain, 1000) == exported(tiered, 1000));
  REQUIRE(digest_of(plain) == digest_of(tiered));
}

}  // namespace

TEST_CASE("device allocator: memory that is in use when it is given, and after it is taken back") {
  Framework framework(0);
  const Stream stream;
  Table plain("t", options_of(-1), 1, false);
  {
    Table tiered("t", options_of(0), 1, false);
    CHECK(framework.taken > 0);
    std::vector<Pending> steps;
    // Growing batches: all growing memory is freed while earlier steps still use it, and allocated
    // anew.
    for (size_t step = 0; step < 8; ++step) {
      steps.push_back(step_both(plain, tiered, 20 << step, step, stream.get()));
    }
    must(cudaStreamSynchronize(stream.get()));
    for (const Pending& step : steps) REQUIRE(step.holds());
    check_same(plain, tiered);
    CHECK(framework.given_back > 0);
    const size_t before = framework.taken;
    check_step(plain, tiered, 300, 77, stream.get());
    CHECK(framework.taken == before);
  }
  CHECK(framework.used == 0);
}

TEST_CASE("device allocator: memory goes back to the allocator that it came from") {
  Table plain("t", options_of(-1), 1, false);
  const Stream stream;
  auto framework = std::make_unique<Framework>(0);
  auto tiered = std::make_unique<Table>("t", options_of(0), 1, false);
  check_step(plain, *tiered, 100, 1, stream.get());
  set_allocator(0, {});
  const size_t taken = framework->taken;
  check_step(plain, *tiered, 900, 2, stream.get());  // grows: from CUDA now
  check_same(plain, *tiered);
  CHECK(framework->taken == taken);
  CHECK(framework->used > 0);
  tiered.reset();
  CHECK(framework->used == 0);
  CHECK(framework->given_back == taken);
}

TEST_CASE("device allocator: without memory a call fails by name, and the next goes on") {
  Framework framework(0);
  const Stream stream;
  Table plain("t", options_of(-1), 1, false), tiered("t", options_of(0), 1, false);
  check_step(plain, tiered, 50, 1, stream.get());
  framework.most = framework.used;
  {
    const std::vector<int64_t> keys(5000, 7);
    const DeviceArray<int64_t> there(keys);
    const DeviceArray<float> pooled(keys.size() * plain.width());
    LayerCall call = call_of(tiered, keys);
    call.features[0].keys = there.data();
    std::string message;
    try {
      device_forward(call, true, {pooled.data()}, nullptr, stream.get());
    } catch (const Error& error) {
      CHECK(error.code() == Code::kResourceExhausted);
      message = error.what();
    }
    CHECK(message.find("GPU 0") != std::string::npos);
    CHECK(message.find(" bytes") != std::string::npos);
    const auto make = [&] { Table("u", options_of(0), 1, false); };
    CHECK(error_code(make) == Code::kResourceExhausted);
  }
  framework.most = ~size_t{0};
  check_step(plain, tiered, 900, 2, stream.get());
  check_same(plain, tiered);
}

TEST_CASE("device allocator: half of one is refused") {
  const hr_device_allocator half = {nullptr, [](void*, size_t) -> void* { return nullptr; },
                                    nullptr};
  CHECK(error_code([&] { set_allocator(0, half); }) == Code::kInvalidArgument);
  CHECK(error_code([&] { set_allocator(-1, {}); }) == Code::kInvalidArgument);
}

TEST_CASE("device allocator: a table on the second GPU, called by a thread that is on the first") {
  int devices = 0;
  must(cudaGetDeviceCount(&devices));
  const auto beyond = [&] { Table("u", options_of(devices), 1, false); };
  CHECK(error_code(beyond) == Code::kFailedPrecondition);
  if (devices < 2) return;
  Framework first(0), second(1);
  Table plain("t", options_of(-1), 1, false);
  {
    const auto stream = stream_on(1);
    Table tiered("t", options_of(1), 1, false);
    for (size_t step = 0; step < 4; ++step) {
      tiered.prefetch(std::vector<int64_t>{1, 5, 9, 300, 301}.data(), 5);
      check_step(plain, tiered, 50 << step, step, stream->get());
      check_same(plain, tiered);
    }
    const std::vector<int64_t> gone = {1, 2, 3};
    CHECK(plain.remove_rows(gone.data(), 3) == tiered.remove_rows(gone.data(), 3));
    check_same(plain, tiered);
  }
  CHECK(second.taken > 0);
  CHECK(second.used == 0);
  CHECK(first.taken == 0);
}

}  // namespace hotrow
