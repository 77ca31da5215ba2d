// Tables whose lines are on a disk that is full, or nearly so: a real file system of 64 MiB.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/error_code.h"
#include "tests/one_table.h"
#include "tests/small_disk.h"

namespace hotrow {
namespace {

constexpr size_t kBatch = 5000;

// Lines of 512 bytes.
TableOptions options_of(const std::string& directory) {
  TableOptions options;
  options.width = 64;
  options.init.kind = InitKind::kUniform;
  options.init.scale = 0.1f;
  options.optimizer.kind = OptimizerKind::kAdagrad;
  if (!directory.empty()) {
    options.cache = {2000, CachePolicy::kLfu};
    options.disk = directory;
  }
  return options;
}

std::vector<int64_t> batch_of(size_t number, size_t rows) {
  std::vector<int64_t> keys(kBatch);
  for (size_t i = 0; i < kBatch; ++i) {
    keys[i] = static_cast<int64_t>((number * kBatch + i) * 7919 % rows);
  }
  return keys;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("full disk: while a snapshot is open, cleaning leaves room for training") {
  const SmallDisk disk("64m");
  if (!disk.mounted()) return;
  constexpr size_t kRows = 20000;
  Table plain("clicks", options_of(""), 1, false),
      table("clicks", options_of(disk.path()), 1, false);
  size_t step = 0;
  const auto train_both = [&](size_t steps) {
    for (; steps > 0; --steps, ++step) {
      train(plain, batch_of(step, kRows), 0.5f);
      train(table, batch_of(step, kRows), 0.5f);
    }
  };
  train_both(20);
  const Rows before = sorted(exported(plain, 1000));
  const auto snapshot = table.open_snapshot(Since::kAll);
  // 20 times as much as the file system holds.
  train_both(500);
  CHECK(sorted(read_all(table, *snapshot, 1000)) == before);
  snapshot->close(false);
  CHECK(digest_of(table) == digest_of(plain));
  CHECK(table.statistics().disk_bytes < size_t{60} << 20);
}

TEST_CASE("full disk: a snapshot that leaves no room is given up by name, and training goes on") {
  const SmallDisk disk("64m");
  if (!disk.mounted()) return;
  constexpr size_t kRows = 76000;
  Table plain("clicks", options_of(""), 1, false),
      table("clicks", options_of(disk.path()), 1, false);
  bool prefetched = false;
  SUBCASE("by steps") {}
  SUBCASE("by prefetching") { prefetched = true; }
  size_t step = 0;
  const auto train_both = [&](size_t steps) {
    for (; steps > 0; --steps, ++step) {
      const std::vector<int64_t> next = batch_of(step + 1, kRows);
      if (prefetched) table.prefetch(next.data(), next.size());
      train(plain, batch_of(step, kRows), 0.5f);
      train(table, batch_of(step, kRows), 0.5f);
    }
  };
  train_both(20);
  const auto snapshot = table.open_snapshot(Since::kAll);
  train_both(60);
  CHECK(digest_of(table) == digest_of(plain));
  const std::string message = message_of([&] { (void)read_all(table, *snapshot, 1000); });
  CHECK(has(message, "the snapshot of table clicks was given up: the disk of " + disk.path()));
  // The next snapshot has all rows.
  const auto next = table.open_snapshot(Since::kAll);
  CHECK(sorted(read_all(table, *next, 1000)) == sorted(exported(plain, 1000)));
  next->close(true);
  train_both(20);
  CHECK(digest_of(table) == digest_of(plain));
}

TEST_CASE(
    "full disk: a snapshot is given up for rows that come in again before their update, too") {
  const SmallDisk disk("64m");
  if (!disk.mounted()) return;
  constexpr size_t kRows = 76000;
  Table plain("clicks", options_of(""), 1, false),
      table("clicks", options_of(disk.path()), 1, false);
  BackwardOptions options;
  SUBCASE("in the backward pass") { options.what = Backward::kUpdate; }
  SUBCASE("in the commit") { options.what = Backward::kAccumulate; }
  // What was looked up leaves the cache for the next batch before its gradients come.
  const auto train = [&](Table& one, size_t step) {
    const std::vector<int64_t> keys = batch_of(step, kRows), next = batch_of(step + 1, kRows);
    const LayerCall call = call_of(one, keys);
    std::vector<float> rows(kBatch * one.width());
    const std::vector<float> gradients(rows.size(), 0.5f);
    if (one.has_disk()) one.prefetch(next.data(), next.size());
    forward(call, true, {rows.data()}, nullptr);
    backward(call, {gradients.data()}, options);
    if (options.what == Backward::kUpdate) return;
    std::vector<float> commit_token(GradientPasses::kSlots, 0.0f);
    commit_token[options.slot] = GradientPasses::kUnit;
    commit({&one}, commit_token.data(), nullptr, 0.0f, Executor());
  };
  size_t step = 0;
  const auto train_both = [&](size_t steps) {
    for (; steps > 0; --steps, ++step) {
      train(plain, step);
      train(table, step);
    }
  };
  train_both(20);
  // Any of the calls may be the one that finds no room.
  for (int snapshots = 0; snapshots < 8; ++snapshots) {
    const auto snapshot = table.open_snapshot(Since::kAll);
    for (const size_t last = step + 60; !snapshot->lost(); train_both(1)) REQUIRE(step < last);
  }
  CHECK(digest_of(table) == digest_of(plain));
}

TEST_CASE("full disk: of two snapshots, that for publishing is given up first") {
  const SmallDisk disk("64m");
  if (!disk.mounted()) return;
  constexpr size_t kRows = 50000;
  Table plain("clicks", options_of(""), 1, false),
      table("clicks", options_of(disk.path()), 1, false);
  size_t step = 0;
  const auto train_both = [&](size_t steps) {
    for (; steps > 0; --steps, ++step) {
      train(plain, batch_of(step, kRows), 0.5f);
      train(table, batch_of(step, kRows), 0.5f);
    }
  };
  train_both(12);
  table.begin_publishing(0);
  // It holds the older lines, and the snapshot for publishing those of now, too.
  const auto checkpoint = table.open_snapshot(Since::kAll);
  const Rows before = sorted(exported(plain, 1000));
  train_both(10);
  const auto publish = table.open_snapshot(Since::kPublish);
  while (!publish->lost() && !checkpoint->lost()) {
    REQUIRE(step < 400);
    train_both(1);
  }
  CHECK(publish->lost());
  CHECK(!checkpoint->lost());
  const std::string message = message_of([&] { (void)read_all(table, *publish, 1000); });
  CHECK(has(message, "the snapshot of table clicks was given up: the disk of " + disk.path()));
  CHECK(sorted(read_all(table, *checkpoint, 1000)) == before);
  checkpoint->close(true);
  train_both(5);
  // Its rows stayed marked.
  const auto next = table.open_snapshot(Since::kPublish);
  CHECK(sorted(read_all(table, *next, 1000)) == sorted(exported(plain, 1000)));
}

TEST_CASE("full disk: a step fails by name and changes nothing; with room, training goes on") {
  const SmallDisk disk("64m");
  if (!disk.mounted()) return;
  Table plain("clicks", options_of(""), 1, false),
      table("clicks", options_of(disk.path()), 1, false);
  size_t step = 0;
  const auto train_both = [&](size_t steps) {
    for (; steps > 0; --steps, ++step) {
      train(plain, batch_of(step, 20000), 0.5f);
      train(table, batch_of(step, 20000), 0.5f);
    }
  };
  train_both(8);
  disk.fill();
  // New rows: the buffers take some of them.
  std::string message;
  for (; message.empty(); ++step) {
    REQUIRE(step < 100);
    const std::vector<int64_t> keys = batch_of(step, 1000000);
    message = message_of([&] { train(table, keys, 0.5f); });
    if (message.empty()) train(plain, keys, 0.5f);
  }
  CHECK(has(message, "table clicks: "));
  CHECK(has(message, disk.path()));
  CHECK(has(message, "No space left on device"));
  CHECK(has(message, " bytes are free)"));
  CHECK(has(message, "rows stay as they were"));
  CHECK(table.size() == plain.size());
  CHECK(table.step() == plain.step());
  disk.make_room();
  CHECK(digest_of(table) == digest_of(plain));
  CHECK(exported(table, 1000) == exported(plain, 1000));
  train_both(20);
  CHECK(digest_of(table) == digest_of(plain));
  CHECK(table.state() == plain.state());
}

}  // namespace hotrow
