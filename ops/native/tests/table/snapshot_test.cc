#include "core/table/snapshot.h"

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "core/base/digest.h"
#include "tests/error_code.h"
#include "tests/one_table.h"
#include "tests/temporary_directory.h"

namespace hotrow {
namespace {

constexpr size_t kWidth = 5;

std::vector<int64_t> random_keys(std::mt19937_64& random, size_t count, int64_t range) {
  std::vector<int64_t> keys(count);
  for (int64_t& key : keys) key = static_cast<int64_t>(random()) % range;
  return keys;
}

// The rows that a chain of snapshots stores, by key.
using Stored = std::map<int64_t, Row>;

void apply(Stored* stored, const Rows& rows, const std::vector<int64_t>& removed) {
  for (const int64_t key : removed) stored->erase(key);
  for (const Row& row : rows) (*stored)[row.key] = row;
}

Rows rows_of(const Stored& stored) {
  Rows rows;
  for (const auto& [key, row] : stored) rows.push_back(row);
  return rows;
}

using Digest = std::vector<uint64_t>;

// Adds the rows that a snapshot does not read to its digest, with steps between.
void add_unchanged(Table& table, Snapshot& snapshot, std::mt19937_64& random) {
  while (snapshot.add_unchanged(1 + random() % 60) > 0) {
    train(table, random_keys(random, random() % 30, 400), 1.0f);
  }
}

// Of a snapshot that was read to its end; {} when it has none.
Digest digest_of(Snapshot& snapshot) {
  Digest digest(2);
  return snapshot.digest(digest.data()) ? digest : Digest{};
}

}  // namespace

TEST_CASE("snapshot: reads the rows of its moment while another thread trains") {
  for (const int32_t shards : {1, 3}) {
    TableOptions options = plain_options(kWidth);
    options.expiry.after_steps = 40;
    options.expiry.sweep_steps = 4;
    Table table("t", options, shards, false);
    std::mt19937_64 random(1);
    for (int step = 0; step < 60; ++step) train(table, random_keys(random, 200, 3000), 1.0f);
    for (int round = 0; round < 4; ++round) {
      const Rows before = exported(table);
      const std::vector<uint8_t> state = table.state();
      const uint32_t step = table.step();
      const Digest digest = digest_of(table);
      const auto snapshot = table.open_snapshot(Since::kAll);
      std::atomic<bool> done{false};
      std::thread trainer([&] {
        // Updates, new keys in free places, and rows that expire.
        while (!done) {
          train(table, random_keys(random, 100, 2000 + 500 * round), 1.0f,
                ManyThreads(2).executor());
        }
      });
      const Rows read = read_all(table, *snapshot, 3);
      done = true;
      trainer.join();
      REQUIRE(sorted(read) == sorted(before));
      CHECK(snapshot->add_unchanged(100) == 0);  // all were read
      CHECK(digest_of(*snapshot) == digest);
      CHECK(snapshot->state() == state);
      CHECK(snapshot->step() == step);
      CHECK(snapshot->rows() >= read.size());
      snapshot->close(true);
    }
  }
}

TEST_CASE("snapshot: the second kind reads what was written since the last kept one") {
  Table table("t", plain_options(kWidth), 2, false);
  train(table, {1, 2, 3, 4, 5}, 1.0f);
  table.open_snapshot(Since::kAll)->close(true);

  train(table, {2, 6}, 1.0f);
  const std::vector<int64_t> gone = {3, 9};
  table.remove_rows(gone.data(), gone.size());
  {
    const auto snapshot = table.open_snapshot(Since::kCheckpoint);
    const Rows rows = sorted(read_all(table, *snapshot));
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].key == 2);
    CHECK(rows[1].key == 6);
    CHECK(snapshot->removed() == std::vector<int64_t>{3});
  }  // not kept: its rows stay due
  {
    train(table, {3}, 1.0f);  // comes back: no longer removed
    const auto snapshot = table.open_snapshot(Since::kCheckpoint);
    CHECK(read_all(table, *snapshot).size() == 3);
    CHECK(snapshot->removed().empty());
    snapshot->close(true);
  }
  const auto snapshot = table.open_snapshot(Since::kCheckpoint);
  CHECK(read_all(table, *snapshot).empty());
  CHECK(snapshot->removed().empty());
}

TEST_CASE("snapshot: without a kept one before, the second kind reads everything") {
  Table table("t", plain_options(kWidth), 1, false);
  train(table, {1, 2, 3}, 1.0f);
  {
    const auto dropped = table.open_snapshot(Since::kAll);
  }
  const auto snapshot = table.open_snapshot(Since::kCheckpoint);
  CHECK(read_all(table, *snapshot).size() == 3);
}

TEST_CASE(
    "snapshot: a base and increments give the rows of the last one, whatever happens between") {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    CAPTURE(seed);
    TableOptions options = plain_options(kWidth);
    if (seed % 2 == 0) {
      options.expiry.after_steps = 12;
      options.expiry.sweep_steps = 5;
    }
    if (seed % 3 == 0) options.admission = {AdmissionKind::kCounter, 2, 0, 0.01};
    Table table("t", options, 2, false);
    std::mt19937_64 random(seed);
    Stored stored;
    bool based = false;
    for (int round = 0; round < 60; ++round) {
      const auto snapshot = table.open_snapshot(based ? Since::kCheckpoint : Since::kAll);
      const Rows now = sorted(exported(table));
      std::vector<int64_t> removed = snapshot->removed();
      const Digest digest = digest_of(table);
      // Steps between the pieces of the read, and before and after the forward of a step.
      Rows read;
      RowRoom room(table, 40);
      const bool whole = random() % 4 != 0;
      const bool unchanged_first = random() % 2 == 0;
      if (unchanged_first) add_unchanged(table, *snapshot, random);
      for (int piece = 0; whole || piece < 2; ++piece) {
        const size_t count = snapshot->read(40, room.arrays());
        if (count == 0) break;
        room.append_to(&read, count);
        train(table, random_keys(random, random() % 30, 400), 1.0f);
        if (random() % 4 == 0) look_up(table, random_keys(random, 3, 1000), true);
      }
      if (whole) {
        if (!unchanged_first) add_unchanged(table, *snapshot, random);
        CHECK(digest_of(*snapshot) == digest);
      }
      if (whole && random() % 4 != 0) {
        snapshot->close(true);
        if (!based) stored.clear();
        apply(&stored, read, removed);
        based = true;
        REQUIRE(rows_of(stored) == now);
      } else {
        snapshot->close(false);
      }
      for (int step = 0; step < 3; ++step) {
        train(table, random_keys(random, random() % 40, 500), 1.0f);
        const std::vector<int64_t> gone = random_keys(random, random() % 10, 500);
        table.remove_rows(gone.data(), gone.size());
        if (random() % 8 == 0) {
          Rows some = exported(table);
          some.resize(some.size() / 2);
          for (Row& row : some) row.count += 1000;
          import_all(table, some, random() % 2 == 0);
        }
      }
    }
  }
}

TEST_CASE("snapshot: rows that change while another thread reads are in the digest once") {
  TableOptions options = plain_options(kWidth);
  options.expiry.after_steps = 60;
  options.expiry.sweep_steps = 4;
  Table table("t", options, 2, false);
  std::mt19937_64 random(5);
  for (int step = 0; step < 40; ++step) train(table, random_keys(random, 200, 3000), 1.0f);
  table.open_snapshot(Since::kAll)->close(true);
  for (int round = 0; round < 6; ++round) {
    table.open_snapshot(Since::kCheckpoint)->close(true);
    train(table, random_keys(random, 100, 3000), 1.0f);
    const Digest digest = digest_of(table);
    const auto snapshot = table.open_snapshot(Since::kCheckpoint);
    std::atomic<bool> done{false};
    std::thread trainer([&] {
      while (!done) {
        train(table, random_keys(random, 100, 3500), 1.0f, ManyThreads(2).executor());
      }
    });
    CHECK(digest_of(*snapshot) == Digest{});  // not known yet
    CHECK(read_all(table, *snapshot, 3).size() <= 100);
    while (snapshot->add_unchanged(3) > 0) continue;
    done = true;
    trainer.join();
    CHECK(digest_of(*snapshot) == digest);
    snapshot->close(true);
  }
}

TEST_CASE("snapshot: an increment of lines on disk has no digest, a full one has") {
  TemporaryDirectory directory;
  TableOptions options = plain_options(kWidth);
  options.cache.rows = 4;
  options.disk = directory / "";
  Table table("t", options, 1, false);
  train(table, {1, 2, 3, 4, 5}, 1.0f);
  {
    const Digest digest = digest_of(table);
    const auto snapshot = table.open_snapshot(Since::kAll);
    train(table, {2, 3}, 1.0f);
    CHECK(read_all(table, *snapshot).size() == 5);
    CHECK(snapshot->add_unchanged(9) == 0);
    CHECK(snapshot->digests_all());
    CHECK(digest_of(*snapshot) == digest);
    snapshot->close(true);
  }
  const auto snapshot = table.open_snapshot(Since::kCheckpoint);
  CHECK(read_all(table, *snapshot).size() == 2);
  CHECK(snapshot->add_unchanged(9) == 0);
  CHECK(!snapshot->digests_all());
  CHECK(digest_of(*snapshot) == Digest{});
}

TEST_CASE("snapshot: rows with clocks ahead of the table's step are not lost to increments") {
  // A table with the rows of another table.
  Table table("t", plain_options(kWidth), 1, false);
  train(table, {1, 2, 3}, 1.0f);
  Rows rows = exported(table);
  for (Row& row : rows) row.clock = 1000;
  table.clear();
  import_all(table, rows, false);
  table.open_snapshot(Since::kAll)->close(true);
  train(table, {2}, 1.0f);
  const auto snapshot = table.open_snapshot(Since::kCheckpoint);
  CHECK(read_all(table, *snapshot).size() == 1);
}

TEST_CASE("snapshot: clearing a table does not hide that its rows are gone") {
  Table table("t", plain_options(kWidth), 1, false);
  train(table, {1, 2, 3}, 1.0f);
  Stored stored;
  {
    const auto base = table.open_snapshot(Since::kAll);
    apply(&stored, read_all(table, *base), base->removed());
    base->close(true);
  }
  table.clear();
  train(table, {3, 4}, 1.0f);
  const auto snapshot = table.open_snapshot(Since::kCheckpoint);
  apply(&stored, read_all(table, *snapshot), snapshot->removed());
  CHECK(rows_of(stored) == sorted(exported(table)));
}

TEST_CASE("snapshot: one at a time, and nothing but training meanwhile") {
  Table table("t", plain_options(kWidth), 1, false);
  train(table, {1, 2, 3}, 1.0f);
  const Rows rows = exported(table);
  const std::vector<uint8_t> state = table.state();
  auto snapshot = table.open_snapshot(Since::kAll);
  CHECK(error_code([&] { table.open_snapshot(Since::kCheckpoint); }) == Code::kFailedPrecondition);
  CHECK(error_code([&] { import_all(table, rows, true); }) == Code::kFailedPrecondition);
  CHECK(error_code([&] { table.clear(); }) == Code::kFailedPrecondition);
  CHECK(error_code([&] { table.set_state(state.data(), state.size()); }) ==
        Code::kFailedPrecondition);
  const int64_t key = 1;
  CHECK(error_code([&] { table.remove_rows(&key, 1); }) == Code::kFailedPrecondition);
  CHECK(digest_of(table).size() == 2);
  snapshot->close(false);
  snapshot->close(true);  // closing again does nothing
  RowRoom room(table, 4);
  CHECK(error_code([&] { snapshot->read(4, room.arrays()); }) == Code::kFailedPrecondition);
  snapshot.reset();
  table.open_snapshot(Since::kCheckpoint)->close(false);
  CHECK(table.remove_rows(&key, 1) == 1);
}

TEST_CASE("snapshot: a table of no rows has an empty one") {
  Table table("t", plain_options(kWidth), 3, true);
  for (const bool due_only : {false, true}) {
    const auto snapshot = table.open_snapshot(due_only ? Since::kCheckpoint : Since::kAll);
    CHECK(snapshot->rows() == 0);
    CHECK(read_all(table, *snapshot).empty());
    snapshot->close(true);
  }
  train(table, {1}, 1.0f);
  CHECK(read_all(table, *table.open_snapshot(Since::kCheckpoint)).size() == 1);
}

TEST_CASE("snapshot: a step whose copies take too much memory waits for the reader") {
  // Rows of 16 KiB: the budget is 2,048 of them.
  const size_t limit = size_t{32} << 20;
  Table table("t", plain_options(4096), 1, false);
  std::vector<int64_t> keys(6000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  for (size_t i = 0; i < keys.size(); i += 1000) {
    train(table, {keys.begin() + static_cast<long>(i), keys.begin() + static_cast<long>(i) + 1000},
          1.0f);
  }
  const auto before = digest_of(table);
  const auto budget = std::make_shared<SnapshotBudget>(SnapshotBudget::WhenSpent::kWait, limit);
  const auto snapshot = table.open_snapshot(Since::kAll, budget);
  std::atomic<int> steps{0};
  std::thread trainer([&] {
    for (size_t i = 0; i < keys.size(); i += 1000, ++steps) {
      train(table,
            {keys.begin() + static_cast<long>(i), keys.begin() + static_cast<long>(i) + 1000},
            1.0f);
    }
  });
  while (snapshot->copied_bytes() < limit) std::this_thread::yield();
  CHECK(steps < 6);
  uint64_t digest[2] = {0, 0};
  RowRoom room(table, 100);
  size_t most = 0;
  while (const size_t count = snapshot->read(100, room.arrays())) {
    Rows rows;
    room.append_to(&rows, count);
    for (const Row& row : rows) {
      std::vector<std::byte> bytes(sizeof(RowHeader) + row.line.size());
      const RowHeader header = {row.key, row.clock, row.count};
      std::memcpy(bytes.data(), &header, sizeof(header));
      std::memcpy(bytes.data() + sizeof(header), row.line.data(), row.line.size());
      add_row_digest(row.key, bytes.data(), bytes.size(), digest);
    }
    most = std::max(most, snapshot->copied_bytes());
  }
  trainer.join();
  CHECK(std::vector<uint64_t>(digest, digest + 2) == before);
  CHECK(snapshot->waited_seconds() > 0);
  // Over the budget at most by one step's copies. Each partition holds its 31 of these in pieces
  // of 64 rows and begins one at most.
  const size_t row = sizeof(RowHeader) + 4096 * 4 + 4;
  CHECK(most <= limit + 64 * table.partition_count() * row);
  CHECK(snapshot->copied_bytes() == 0);
}

namespace {

// Two tables with rows of 16 KiB, of which 64 MiB are 4,096, and one budget for their snapshots.
struct TwoTables {
  static constexpr int64_t kRows = 6000, kStep = 1000;

  TwoTables() {
    for (Table* table : {&first, &second}) train_all(*table);
  }
  static void train_all(Table& table) {
    for (int64_t begin = 0; begin < kRows; begin += kStep) {
      std::vector<int64_t> keys(kStep);
      for (int64_t i = 0; i < kStep; ++i) keys[static_cast<size_t>(i)] = begin + i;
      train(table, keys, 1.0f);
    }
  }

  Table first{"first", plain_options(4096), 1, false};
  Table second{"second", plain_options(4096), 1, false};
  std::shared_ptr<SnapshotBudget> budget = std::make_shared<SnapshotBudget>();
};

}  // namespace

TEST_CASE("snapshot: copies are read first while those of all tables take much memory") {
  TwoTables tables;
  const Rows before = exported(tables.second);
  const auto first = tables.first.open_snapshot(Since::kAll, tables.budget);
  const auto second = tables.second.open_snapshot(Since::kAll, tables.budget);
  std::thread trainer([&] { TwoTables::train_all(tables.second); });
  while (tables.budget->copied_bytes() < tables.budget->limit()) std::this_thread::yield();
  // Reading the first table would not free what the step waits for; its copies do, at once.
  Rows rows;
  RowRoom room(tables.second, 100);
  size_t read = 0;
  while (tables.budget->short_of_memory()) {
    const size_t count = second->read(100, room.arrays());
    REQUIRE(count > 0);
    room.append_to(&rows, count);
    read += count;
  }
  // In the order of places it could be all rows of most partitions.
  CHECK(read < 6000);
  // The trainer may wait for this reader again.
  while (const size_t count = second->read(100, room.arrays())) room.append_to(&rows, count);
  trainer.join();
  CHECK(sorted(rows) == sorted(before));
  CHECK(second->waited_seconds() > 0);
  CHECK(first->waited_seconds() == 0);
}

TEST_CASE("snapshot: a step waits no longer once one of the snapshots is closed") {
  TwoTables tables;
  auto first = tables.first.open_snapshot(Since::kAll, tables.budget);
  const auto second = tables.second.open_snapshot(Since::kAll, tables.budget);
  std::thread trainer([&] { TwoTables::train_all(tables.second); });
  while (tables.budget->copied_bytes() < tables.budget->limit()) std::this_thread::yield();
  first->close(false);
  trainer.join();
  CHECK(second->waited_seconds() < SnapshotBudget::kPatienceSeconds);
  CHECK(!tables.budget->lost());
}

}  // namespace hotrow
