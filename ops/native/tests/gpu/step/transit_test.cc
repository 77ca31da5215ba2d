// Rows outside the slots go back to the host tier while the next step begins. What comes between
// the two steps sees the newest rows, bit for bit.
#include "core/gpu/step/transit.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/gpu/step/tier.h"
#include "core/gpu/step/workspace.h"
#include "core/table/snapshot.h"
#include "tests/gpu/prefetched_pair.h"

namespace hotrow {
namespace {

// Two tables with one set of slots each: most rows of a batch are outside.
struct Sides {
  explicit Sides(Kind kind = kind_of(32)) {
    kind.optimizer = OptimizerKind::kAdagrad;
    plain.emplace(std::vector<Kind>(2, kind), false);
    tiered.emplace(std::vector<Kind>(2, kind), true);
    for (int i = 0; i < 3; ++i) train(range(0, 300));
  }

  std::vector<Input> inputs(const std::vector<int64_t>& keys) const {
    std::vector<Input> all(2);
    for (size_t t = 0; t < 2; ++t) {
      all[t].table = t;
      all[t].keys = keys;
      // The second table has the same keys, and gradients of its own.
      all[t].samples = keys.size();
      for (size_t i = 0; i < keys.size() * plain->all[t]->width(); ++i) {
        all[t].gradients.push_back(spoiled ? NAN : static_cast<float>((i + t) % 7) - 2.5f);
      }
    }
    return all;
  }
  void train(const std::vector<int64_t>& keys) { train(keys, keys); }
  // Both passes before the gradients of either.
  void train(const std::vector<int64_t>& keys, const std::vector<int64_t>& more) {
    const bool both = keys != more;
    const std::vector<Input> in = inputs(keys), second = inputs(more);
    HostSide host(*plain, in, Executor()), host_second(*plain, second, Executor());
    DeviceSide device(*tiered, in, Executor(), stream);
    DeviceSide device_second(*tiered, second, Executor(), stream);
    const int64_t a = host.forward(true), b = device.forward(true);
    const int64_t c = both ? host_second.forward(true) : 0;
    const int64_t d = both ? device_second.forward(true) : 0;
    host.backward(now(a));
    device.backward(now(b));
    if (both) host_second.backward(now(c));
    if (both) device_second.backward(now(d));
    REQUIRE(same_bits(host.outputs(), device.outputs()));
    if (both) REQUIRE(same_bits(host_second.outputs(), device_second.outputs()));
  }
  void evaluate(const std::vector<int64_t>& keys) {
    const std::vector<Input> in = inputs(keys);
    HostSide host(*plain, in, Executor());
    DeviceSide device(*tiered, in, Executor(), stream);
    host.forward(false);
    device.forward(false);
    REQUIRE(same_bits(host.outputs(), device.outputs()));
  }
  void both(const std::function<void(Table&)>& act) {
    for (const Tables* tables : {&*plain, &*tiered}) {
      for (Table* table : tables->all) act(*table);
    }
  }
  void check() { check_same(*plain, *tiered); }

  const Stream stream;
  std::optional<Tables> plain, tiered;
  bool spoiled = false;  // no row is updated
};

#if defined(HOTROW_SIMT)
const RowsInTransit& transit_of(const Sides& sides) {
  return gpu_tier_of(*sides.tiered->all[0])->workspace->transit;
}

// After a step over `keys`, the rows that it sends back stand still until act, in a thread of its
// own, waits for them, or ends. Returns whether it waits.
bool waits_for_transit(Sides& sides, const std::vector<int64_t>& keys,
                       const std::function<void()>& act) {
  must(cudaDeviceSynchronize());
  std::optional<simt::HeldStream> held(transit_of(sides).stream());
  sides.train(keys);
  auto done = std::async(std::launch::async, act);
  bool waits = false;
  while (!waits && done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    std::this_thread::yield();
    waits = simt::blocked_threads() > 0;
  }
  held.reset();
  done.get();
  return waits;
}
#endif

}  // namespace

#if defined(HOTROW_SIMT)
TEST_CASE("device transit: rows come in while those of the step before go out") {
  Sides sides;
  const std::vector<Input> in = sides.inputs(range(0, 250));
  HostSide host(*sides.plain, in, Executor());
  DeviceSide device(*sides.tiered, in, Executor(), sides.stream);
  int64_t host_ticket = 0, ticket = 0;
  {
    must(cudaDeviceSynchronize());
    const simt::HeldStream held(transit_of(sides).stream());
    sides.train(range(100, 200));
    host_ticket = host.forward(true);
    ticket = device.forward(true);
    // Some of the rows are in transit, and others are in the host tier.
    CHECK(same_bits(host.outputs(), device.outputs()));
  }
  host.backward(now(host_ticket));
  device.backward(now(ticket));
  sides.check();
}

TEST_CASE("device transit: a window reads no row that is on its way") {
  Sides sides;
  CHECK(waits_for_transit(sides, range(100, 200), [&] {
    for (Table* table : sides.tiered->all) ahead_and_wait(*table, range(150, 100));
    sides.evaluate(range(100, 200));
  }));
  sides.check();
}

TEST_CASE("device transit: memory of rows on their way is not used again before they arrived") {
  Sides sides;
  CHECK(waits_for_transit(sides, range(100, 200), [&] {
    sides.train(range(50, 250));
    sides.train(range(0, 250));
  }));
  sides.check();
}

TEST_CASE("device transit: rows are settled, counted and removed after older ones arrived") {
  const auto few = range(40, 12);
  const std::vector<std::function<void(Sides&)>> acts = {
      [](Sides& s) { (void)exported(*s.tiered->all[0], 100); },
      [](Sides& s) { (void)s.tiered->all[0]->open_snapshot(Since::kAll)->close(false); },
      [](Sides& s) { (void)s.tiered->all[0]->statistics(); },
      [&](Sides& s) { s.both([&](Table& t) { t.remove_rows(few.data(), few.size()); }); },
  };
  for (size_t i = 0; i < acts.size(); ++i) {
    CAPTURE(i);
    Sides sides(kind_of(32, CachePolicy::kLru));
    CHECK(waits_for_transit(sides, range(0, 100), [&] {
      // They come into slots from the rows in transit, and are newer then.
      sides.train(few);
      acts[i](sides);
    }));
    sides.check();
  }
}
#endif

TEST_CASE("device transit: steps over the same rows, with one pass or two before the gradients") {
  Sides sides;
  for (int64_t round = 0; round < (kLess ? 4 : 12); ++round) {
    CAPTURE(round);
    sides.train(range(round * 20, 150));
    if (round % 3 == 1) sides.train(range(100, 150), range(round * 30, 150));
    if (round % 4 == 2) sides.evaluate(range(50, 300));
    sides.train(range(round * 10, 200));
    if (round % 4 == 3) sides.check();
  }
  sides.check();
}

TEST_CASE(
    "device transit: a row that came in, was updated and left its slot is not the older one") {
  Sides sides(kind_of(32, CachePolicy::kLru));
  for (int64_t round = 0; round < (kLess ? 4 : 12); ++round) {
    CAPTURE(round);
    // Most are outside the slots and go back. A few get slots, where they are updated, and lose
    // them to others; in these steps no row is outside.
    sides.train(range(0, 100));
    for (const int64_t first : {40, 200, 220, 40}) sides.train(range(first, 12));
  }
  sides.check();
}

TEST_CASE("device transit: what changes rows between two steps is not undone by older ones") {
  const auto some = range(120, 60);
  const std::vector<std::function<void(Sides&)>> changes = {
      [&](Sides& s) { s.both([&](Table& t) { t.remove_rows(some.data(), some.size()); }); },
      [](Sides& s) {
        s.both([](Table& t) {
          const Rows rows = exported(t, 100);
          t.clear();
          import_all(t, rows, true);
        });
      },
      [&](Sides& s) {
        // Windows bring rows into slots, where another table's layer updates them and evicts them.
        for (Table* table : s.tiered->all) ahead_and_wait(*table, some);
      },
      [&](Sides& s) {
        for (size_t t = 0; t < 2; ++t) {
          Tables plain({}, false), tiered({}, true);
          plain.all = {s.plain->all[t]};
          tiered.all = {s.tiered->all[t]};
          std::vector<Input> in = {s.inputs(some)[t]};
          in[0].table = 0;
          HostSide host(plain, in, Executor());
          DeviceSide device(tiered, in, Executor(), s.stream);
          host.backward(now(host.forward(true)));
          device.backward(now(device.forward(true)));
        }
      },
      [](Sides& s) { s.both([](Table& t) { (void)exported(t, 100); }); },
      [](Sides& s) { s.both([](Table& t) { (void)t.statistics(); }); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    Sides sides;
    for (int64_t round = 0; round < 4; ++round) {
      sides.train(range(100, 150));
      changes[i](sides);
      sides.train(range(80, 150));
      sides.train(range(0, 40));
    }
    sides.check();
  }
}

TEST_CASE("device transit: rows that expire while they go out begin anew") {
  Kind kind = kind_of(32);
  kind.expiry = true;
  Sides sides(kind);
  for (int64_t round = 0; round < (kLess ? 6 : 20); ++round) {
    sides.train(range(round % 4 * 100, 150));
    if (round % 5 == 4) sides.check();
  }
  // A row that is not updated may expire as soon as it goes back.
  sides.spoiled = true;
  for (int64_t round = 0; round < 16; ++round) sides.train(range(0, 150));
  sides.check();
}

TEST_CASE("device transit: a snapshot's copies are whole") {
  Sides sides;
  for (int round = 0; round < (kLess ? 3 : 8); ++round) {
    std::vector<Rows> rows[2];
    std::vector<std::unique_ptr<Snapshot>> open;
    size_t side = 0;
    for (const Tables* tables : {&*sides.plain, &*sides.tiered}) {
      for (Table* table : tables->all) {
        open.push_back(table->open_snapshot(round > 0 ? Since::kCheckpoint : Since::kAll));
        rows[side].push_back(read_all(*table, *open.back(), 40));
      }
      ++side;
    }
    for (int64_t step = 0; step < 3; ++step) sides.train(range(step * 30, 150));
    size_t next = 0;
    for (const Tables* tables : {&*sides.plain, &*sides.tiered}) {
      for (size_t t = 0; t < 2; ++t) {
        Rows& all = rows[next / 2][t];
        const Rows rest = read_all(*tables->all[t], *open[next], 40);
        all.insert(all.end(), rest.begin(), rest.end());
        all = sorted(all);
        open[next++]->close(true);
      }
    }
    CHECK(rows[0] == rows[1]);
    sides.train(range(100, 80));
  }
  sides.check();
}

TEST_CASE("device transit: rows that were written back are all counted") {
  Sides sides;
  Table& table = *sides.tiered->all[0];
  const uint64_t before = counts_of(table).written_back;
  for (int i = 0; i < 5; ++i) sides.train(range(0, 300));
  (void)exported(table, 100);
  // Of every step, each row once: outside the slots at once, or when it is brought back.
  const uint64_t after = counts_of(table).written_back;
  CHECK(after - before >= 5 * (300 - 64));
  CHECK(after - before <= 5 * 300 + 32);
}

}  // namespace hotrow
