// No call holds its tables' locks while the device does what else is on the call's stream. On a GPU
// nothing holds a stream, so the tests are for the emulator.
#if defined(HOTROW_SIMT)
#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "tests/gpu/prefetched_pair.h"

namespace hotrow {
namespace {

// Whether `other` ends while `step` waits for work on the stream that the device does not do now.
template <typename Step, typename Other>
bool ends_beside(const Stream& stream, Step&& step, Other&& other) {
  std::optional<simt::HeldStream> held(stream.get());
  auto stepped = std::async(std::launch::async, step);
  while (simt::blocked_threads() == 0) std::this_thread::yield();
  auto ended = std::async(std::launch::async, other);
  // Only what never ends takes so long.
  const bool beside = ended.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  held.reset();
  stepped.get();
  ended.get();
  return beside;
}

// Whether a window comes in while `step` waits for its inputs.
template <typename Step>
bool comes_in_beside(Pair& pair, Step&& step) {
  pair.stream.wait();
  return ends_beside(pair.stream, step, [&] { ahead_and_wait(pair.table(), range(1000, 200)); });
}

// A pair with rows, after windows as large as the next ones.
struct Ready : Pair {
  Ready() : Pair(kind_of(512)) {
    train(range(0, 2000));
    for (int64_t w = 0; w < 3; ++w) ahead_and_wait(table(), range(w * 300, 300));
    train(range(1500, 400));
  }
};

}  // namespace

TEST_CASE("device locks: a window comes in while a forward pass waits for its inputs") {
  Ready pair;
  CHECK(comes_in_beside(pair, [&] { pair.train(range(1500, 300)); }));
  pair.check();
}

TEST_CASE("device locks: a window comes in while a backward pass looks its rows up again") {
  Ready pair;
  const std::vector<Input> in = pair.inputs(range(1500, 300));
  HostSide host(pair.plain, in, Executor());
  DeviceSide device(pair.tiered, in, Executor(), pair.stream);
  const int64_t host_ticket = host.forward(true), ticket = device.forward(true);
  // Rows move, and so the pass has lost its own.
  ahead_and_wait(pair.table(), range(300, 300));
  CHECK(comes_in_beside(pair, [&] { device.backward(now(ticket)); }));
  host.backward(now(host_ticket));
  pair.check();
}

TEST_CASE("device locks: a backward pass that sends its rows back waits for nothing") {
  Ready pair;
  // They are too many for the cache: most are beside it.
  const std::vector<Input> in = pair.inputs(range(0, 1500));
  HostSide host(pair.plain, in, Executor());
  DeviceSide device(pair.tiered, in, Executor(), pair.stream);
  const int64_t host_ticket = host.forward(true), ticket = device.forward(true);
  {
    const simt::HeldStream held(pair.stream.get());
    const simt::Counts before = simt::counts();
    device.backward(now(ticket));
    CHECK((simt::counts() - before).waits == 0);
  }
  host.backward(now(host_ticket));
  pair.check();
}

TEST_CASE("device locks: a window comes in while a commit waits for its gradients") {
  Ready pair;
  const std::vector<Input> in = pair.inputs(range(1500, 300));
  HostSide host(pair.plain, in, Executor());
  DeviceSide device(pair.tiered, in, Executor(), pair.stream);
  std::vector<float> commit_token(GradientPasses::kSlots, 0.0f);
  const auto accumulate = [&](const Tables& tables, auto& side) {
    BackwardOptions options = now(side.forward(true));
    options.what = Backward::kAccumulate;
    options.slot = tables.all[0]->passes.next_slot();
    side.backward(options);
    commit_token[options.slot] = GradientPasses::kUnit;
  };
  accumulate(pair.plain, host);
  commit(pair.plain.all, commit_token.data(), nullptr, 0.0f, Executor());
  accumulate(pair.tiered, device);
  CHECK(comes_in_beside(pair, [&] {
    device_commit(pair.tiered.all, commit_token.data(), nullptr, 0.0f, Executor(),
                  pair.stream.get());
  }));
  pair.check();
}

TEST_CASE("device locks: a table is read while its rows are written back, after a step's work") {
  Pair pair(kind_of(6000));
  pair.train(range(0, 2000));
  const std::vector<Input> in = pair.inputs(range(1500, 300));
  HostSide host(pair.plain, in, Executor());
  DeviceSide device(pair.tiered, in, Executor(), pair.stream);
  const int64_t host_ticket = host.forward(true), ticket = device.forward(true);
  host.backward(now(host_ticket));
  pair.stream.wait();
  uint64_t digest[2];
  CHECK(ends_beside(
      pair.stream,
      [&] {
        device.backward(now(ticket));
        pair.table().digest(false, digest);
      },
      [&] { CHECK(pair.table().step() > 0); }));
  pair.check();
}

namespace {

// Tables of another layer.
Tables some(const Tables& from, const std::vector<size_t>& which) {
  Tables tables({}, false);
  for (const size_t t : which) tables.all.push_back(from.all[t]);
  return tables;
}

}  // namespace

TEST_CASE("device locks: a call waits for the last use of each of its tables") {
  const Stream one, two;
  const std::vector<Kind> kinds(3, kind_of(512));
  Tables plain(kinds, false), tiered(kinds, true);
  std::mt19937_64 random(14);
  // The shared table is the first, and the last, of the later call.
  for (const std::vector<size_t>& later : {std::vector<size_t>{1, 2}, {2, 1}}) {
    const std::vector<Input> first = inputs_of(random, some(plain, {0, 1}), 60, 200);
    const std::vector<Input> second = inputs_of(random, some(plain, later), 60, 200);
    HostSide a(some(plain, {0, 1}), first, Executor()), b(some(plain, later), second, Executor());
    DeviceSide c(some(tiered, {0, 1}), first, Executor(), one);
    DeviceSide d(some(tiered, later), second, Executor(), two);
    // Its rows are in slots, its memory is there.
    b.backward(now(b.forward(true)));
    d.backward(now(d.forward(true)));
    a.backward(now(a.forward(true)));
    const int64_t ticket = c.forward(true);
    one.wait();
    two.wait();
    std::optional<simt::HeldStream> held(one.get());
    c.backward(now(ticket));
    auto forward = std::async(std::launch::async, [&] { return d.forward(true); });
    const auto ended = [&] {
      return forward.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    while (simt::blocked_threads() == 0 && !ended()) std::this_thread::yield();
    CHECK(!ended());
    held.reset();
    b.backward(now(b.forward(true)));
    d.backward(now(forward.get()));
    check_same(plain, tiered);
  }
}

TEST_CASE("device locks: a call waits for no call that shares none of its tables") {
  const Stream one, two;
  const std::vector<Kind> kinds(3, kind_of(512));
  Tables plain(kinds, false), tiered(kinds, true);
  std::mt19937_64 random(16);
  const std::vector<std::vector<size_t>> layers = {{0, 1}, {0, 2}, {1}};
  std::vector<std::vector<Input>> inputs;
  for (const auto& layer : layers) inputs.push_back(inputs_of(random, some(plain, layer), 60, 200));
  const auto host = [&](size_t i) {
    HostSide side(some(plain, layers[i]), inputs[i], Executor());
    side.backward(now(side.forward(true)));
  };
  const auto device = [&](size_t i, const Stream& stream) {
    DeviceSide side(some(tiered, layers[i]), inputs[i], Executor(), stream);
    side.backward(now(side.forward(true)));
    stream.wait();
  };
  // The last use of table 1 is that of the layer {0, 1}; rows are in slots, memory is there.
  for (const size_t i : {1, 2, 0}) host(i), device(i, two);
  DeviceSide held_side(some(tiered, layers[1]), inputs[1], Executor(), one);
  const int64_t ticket = held_side.forward(true);
  one.wait();
  std::optional<simt::HeldStream> held(one.get());
  held_side.backward(now(ticket));
  auto other = std::async(std::launch::async, [&] { device(2, two); });
  CHECK(other.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  held.reset();
  other.get();
  host(1);
  host(2);
  check_same(plain, tiered);
}

}  // namespace hotrow
#endif
