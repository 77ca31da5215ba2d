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
  const auto snapshot = table.open_snapshot(false);
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
  const auto snapshot = table.open_snapshot(false);
  train_both(60);
  CHECK(digest_of(table) == digest_of(plain));
  const std::string message = message_of([&] { (void)read_all(table, *snapshot, 1000); });
  CHECK(has(message, "the snapshot of table clicks was given up: the disk of " + disk.path()));
  // The next snapshot has all rows.
  const auto next = table.open_snapshot(false);
  CHECK(sorted(read_all(table, *next, 1000)) == sorted(exported(plain, 1000)));
  next->close(true);
  train_both(20);
  CHECK(digest_of(table) == digest_of(plain));
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
