#include "core/table/table.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

#include "tests/error_code.h"
#include "tests/one_table.h"

namespace hotrow {
namespace {

std::vector<int64_t> range(int64_t first, int64_t last) {
  std::vector<int64_t> keys;
  for (int64_t key = first; key < last; ++key) keys.push_back(key);
  return keys;
}

TableOptions adagrad_options() {
  TableOptions options;
  options.width = 3;
  options.init = {InitKind::kUniform, 0.5f, 11, 12};
  options.optimizer.kind = OptimizerKind::kAdagrad;
  return options;
}

// Steps of random keys in [0, range): rows come in, and a few are removed in between.
void random_steps(Table& table, uint64_t seed, int steps, int64_t range_of_keys) {
  std::mt19937_64 random(seed);
  for (int step = 0; step < steps; ++step) {
    std::vector<int64_t> keys(1 + random() % 60);
    for (int64_t& key : keys) key = static_cast<int64_t>(random()) % range_of_keys;
    train(table, keys, static_cast<float>(random() % 100) / 64.0f);
    if (step % 3 == 0) table.remove_rows(keys.data(), keys.size() / 2);
  }
}

}  // namespace

TEST_CASE("table: an unknown key reads the default row, and only training inserts it") {
  TableOptions options = adagrad_options();
  options.default_value = 7.0f;
  Table table("t", options, 1, false);
  CHECK(look_up(table, {5, -5}, false) == std::vector<float>(6, 7.0f));
  CHECK(table.size() == 0);
  std::vector<float> first(3);
  initialize_row(options.init, 5, 3, first.data());
  const std::vector<float> rows = look_up(table, {5, 5, -5}, true);
  CHECK(std::equal(first.begin(), first.end(), rows.begin()));
  CHECK(std::equal(first.begin(), first.end(), rows.begin() + 3));
  CHECK(table.size() == 2);
  const std::vector<float> known = look_up(table, {6, 5}, false);
  CHECK(known[0] == 7.0f);
  CHECK(known[3] == first[0]);
  CHECK(look_up(table, {}, true).empty());
}

TEST_CASE("table: gradients of a key are summed, and its clock and count move") {
  Table table("t", plain_options(2), 1, false);
  look_up(table, {1, 2, 1, 3}, true);
  for (const Row& row : exported(table)) {
    CHECK(row.clock == 1);  // the next step
    CHECK(row.count == 0);
  }
  update(table, {1, 2, 1}, {1, 2, 10, 20, 4, 8});
  CHECK(table.step() == 1);
  CHECK(look_up(table, {1, 2, 3}, false) == std::vector<float>{-5, -10, -10, -20, 0, 0});
  update(table, {1}, {1, 1});
  const Rows rows = sorted(exported(table));
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].clock == 2);
  CHECK(rows[0].count == 3);
  CHECK(rows[1].clock == 1);
  CHECK(rows[1].count == 1);
  CHECK(rows[2].count == 0);
}

TEST_CASE("table: keys out of the vocabulary are refused before anything changes") {
  TableOptions options = plain_options();
  options.vocabulary_size = 10;
  Table table("t", options, 2, false);
  train(table, range(0, 10), 1.0f);
  const auto before = digest_of(table);
  CHECK(error_code([&] { look_up(table, {3, 10}, true); }) == Code::kOutOfRange);
  CHECK(error_code([&] { look_up(table, {-1}, false); }) == Code::kOutOfRange);
  CHECK(error_code([&] { update(table, {1, INT64_MIN}, std::vector<float>(8)); }) ==
        Code::kOutOfRange);
  Rows rows = exported(table);
  rows[3].key = 10;
  CHECK(error_code([&] { import_all(table, rows, true); }) == Code::kOutOfRange);
  CHECK(digest_of(table) == before);
  CHECK(table.step() == 1);
}

TEST_CASE("table: an export gives every row once, in an order that depends on history alone") {
  for (const int32_t shards : {1, 3}) {
    Table one("t", adagrad_options(), shards, false), two("t", adagrad_options(), shards, false);
    random_steps(one, 1, 60, 2000);
    random_steps(two, 1, 60, 2000);
    const Rows rows = exported(one, 7);
    CHECK(rows.size() == one.size());
    CHECK(rows == exported(two, 7));
    CHECK(rows == exported(two, 1));
    CHECK(rows == exported(two, 100000));
    CHECK(digest_of(one) == digest_of(two));
    std::map<int64_t, int> times;
    for (const Row& row : rows) ++times[row.key];
    CHECK(times.size() == rows.size());
    // Partition and place ascend within a shard.
    for (size_t i = 1; i < rows.size(); ++i) {
      const auto place = [&](const Row& row) {
        const uint64_t hash = mix64(static_cast<uint64_t>(row.key));
        return std::pair(one.partition_number(row.key, hash), row.place);
      };
      REQUIRE(place(rows[i - 1]) < place(rows[i]));
    }
  }
}

TEST_CASE("table: shards change where rows lie and nothing else") {
  Table one("t", adagrad_options(), 1, false), three("t", adagrad_options(), 3, false),
      hashed("t", adagrad_options(), 4, true);
  for (Table* table : {&one, &three, &hashed}) random_steps(*table, 2, 40, 3000);
  CHECK(digest_of(one) == digest_of(three));
  CHECK(digest_of(one) == digest_of(hashed));
  CHECK(digest_of(one, true) == digest_of(hashed, true));
  CHECK(digest_of(one, true) != digest_of(one, false));
}

TEST_CASE("table: restored at its places, a table goes on bit for bit, places included") {
  Table table("t", adagrad_options(), 2, false);
  random_steps(table, 3, 80, 1500);
  Table restored("t", adagrad_options(), 2, false);
  random_steps(restored, 4, 5, 30);
  restored.clear();
  import_all(restored, exported(table), true);
  const std::vector<uint8_t> state = table.state();
  restored.set_state(state.data(), state.size());
  CHECK(exported(restored) == exported(table));
  CHECK(restored.state() == state);
  random_steps(table, 5, 80, 1500);
  random_steps(restored, 5, 80, 1500);
  CHECK(exported(restored) == exported(table));
  CHECK(restored.state() == table.state());
}

TEST_CASE("table: rows imported in any order to other shards are the same rows") {
  Table table("t", adagrad_options(), 2, false);
  random_steps(table, 6, 50, 1500);
  Rows rows = exported(table);
  std::shuffle(rows.begin(), rows.end(), std::mt19937_64(1));
  Table other("t", adagrad_options(), 5, true);
  import_all(other, rows, false);
  CHECK(other.size() == table.size());
  CHECK(digest_of(other) == digest_of(table));
}

TEST_CASE("table: an imported row replaces the key's own, at its place or elsewhere") {
  Table table("t", plain_options(2), 1, false);
  train(table, range(0, 500), 1.0f);
  Rows rows = exported(table);
  Rows changed(rows.begin(), rows.begin() + 100);
  for (Row& row : changed) {
    row.clock = 77;
    row.count = 88;
    row.line[0] = std::byte{99};
  }
  import_all(table, changed, true);
  std::copy(changed.begin(), changed.end(), rows.begin());
  CHECK(exported(table) == rows);
  import_all(table, {rows[7]}, false);
  CHECK(sorted(exported(table)).size() == 500);

  // To another key's place: that key's row is removed.
  Row moved = rows[0];
  const uint64_t hash = mix64(static_cast<uint64_t>(moved.key));
  const size_t partition = table.partition_number(moved.key, hash);
  size_t at = 1;
  while (table.partition_number(rows[at].key, mix64(static_cast<uint64_t>(rows[at].key))) !=
         partition)
    ++at;
  moved.place = rows[at].place;
  import_all(table, {moved}, true);
  CHECK(table.size() == 499);
  const Rows after = exported(table);
  for (const Row& row : after) CHECK(row.key != rows[at].key);
  CHECK(std::count(after.begin(), after.end(), moved) == 1);
}

TEST_CASE("table: rows with clocks and places that no export gives are refused") {
  Table table("t", plain_options(2), 1, false);
  train(table, {1, 2}, 1.0f);
  const auto before = digest_of(table);
  Row row = exported(table)[0];
  row.clock = 0xffffffffu;
  CHECK(error_code([&] { import_all(table, {row}, false); }) != Code::kOk);
  row = exported(table)[0];
  row.place = 0xffffffffu;
  CHECK(error_code([&] { import_all(table, {row}, true); }) != Code::kOk);
  // This many places take more memory than the machine has.
  row.place = 0x7ffffff0u;
  CHECK(error_code([&] { import_all(table, {row}, true); }) != Code::kOk);
  CHECK(digest_of(table) == before);
}

TEST_CASE("table: a removed key starts anew") {
  Table table("t", adagrad_options(), 2, false);
  train(table, range(0, 100), 1.0f);
  const auto first = digest_of(table, true);
  const std::vector<int64_t> keys = {1, 2, 3, 200, 2};
  CHECK(table.remove_rows(keys.data(), keys.size()) == 3);
  CHECK(table.size() == 97);
  const std::vector<float> initial = look_up(table, {2}, false);
  CHECK(initial == std::vector<float>(3, 0.0f));
  std::vector<float> values(3);
  initialize_row(adagrad_options().init, 2, 3, values.data());
  CHECK(look_up(table, {2}, true) == values);
  CHECK(digest_of(table, true) != first);
}

TEST_CASE("table: a cleared table is as a new one") {
  Table table("t", adagrad_options(), 2, false), fresh("t", adagrad_options(), 2, false);
  random_steps(table, 7, 30, 500);
  table.clear();
  CHECK(table.size() == 0);
  CHECK(exported(table).empty());
  CHECK(table.state() == fresh.state());
  random_steps(table, 8, 30, 500);
  random_steps(fresh, 8, 30, 500);
  CHECK(exported(table) == exported(fresh));
}

// --- state ---------------------------------------------------------------------------------------

TEST_CASE("table state: damaged bytes are refused and change nothing") {
  TableOptions options = plain_options(1);
  options.admission.kind = AdmissionKind::kCounter;
  options.admission.occurrences = 2;
  options.expiry.after_steps = 3;
  options.expiry.sweep_steps = 1;
  Table table("t", options, 1, false);
  for (int64_t key = 0; key < 40; ++key) train(table, {key, key + 1}, 1.0f);
  const std::vector<uint8_t> state = table.state();
  Table other("t", options, 1, false);
  train(other, {1, 1}, 1.0f);
  const std::vector<uint8_t> before = other.state();
  for (size_t size = 0; size < state.size(); size += 1 + size / 50) {
    REQUIRE(error_code([&] { other.set_state(state.data(), size); }) == Code::kDataLoss);
  }
  for (size_t bit = 0; bit < 8 * state.size(); bit += 1 + bit / 200) {
    std::vector<uint8_t> damaged = state;
    damaged[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    REQUIRE(error_code([&] { other.set_state(damaged.data(), damaged.size()); }) ==
            Code::kDataLoss);
  }
  CHECK(other.state() == before);
  other.set_state(state.data(), state.size());
  CHECK(other.state() == state);
}

TEST_CASE("table state: bytes of another admission are refused and change nothing") {
  const auto with = [](AdmissionKind kind, uint32_t occurrences) {
    TableOptions options = plain_options(1);
    options.admission = {kind, occurrences, 100, 0.01};
    return options;
  };
  Table table("t", with(AdmissionKind::kCounter, 2), 1, false);
  train(table, range(0, 50), 1.0f);
  const std::vector<uint8_t> state = table.state();
  for (const TableOptions& options :
       {with(AdmissionKind::kCounter, 3), with(AdmissionKind::kFilter, 2), plain_options(1)}) {
    Table other("t", options, 1, false);
    train(other, range(0, 20), 1.0f);
    const std::vector<uint8_t> before = other.state();
    CHECK(error_code([&] { other.set_state(state.data(), state.size()); }) ==
          Code::kFailedPrecondition);
    CHECK(other.state() == before);
  }
}

// --- admission and expiry ------------------------------------------------------------------------

TEST_CASE(
    "table admission: a key gets a row with its n-th occurrence; before, gradients are dropped") {
  for (const AdmissionKind kind : {AdmissionKind::kCounter, AdmissionKind::kFilter}) {
    TableOptions options = plain_options(1);
    options.admission = {kind, 3, 1000, 0.001};
    options.default_value = 9.0f;
    Table table("t", options, 2, false);
    CHECK(look_up(table, {4, 4}, true) == std::vector<float>{9, 9});
    update(table, {4, 4}, {1, 1});
    CHECK(table.size() == 0);
    CHECK(table.statistics().waiting == 1);
    CHECK(look_up(table, {4}, false) == std::vector<float>{9});  // not an occurrence
    CHECK(table.statistics().refused == 2);
    CHECK(look_up(table, {4, 5}, true) == std::vector<float>{0, 9});
    update(table, {4, 5}, {1, 1});
    CHECK(look_up(table, {4, 5}, false) == std::vector<float>{-1, 9});
    const Table::Statistics statistics = table.statistics();
    CHECK(statistics.rows == 1);
    CHECK(statistics.admitted == 1);
    CHECK(statistics.refused == 3);
    CHECK(statistics.waiting == 1);
  }
}

TEST_CASE("table expiry: rows that were not updated for long leave and are remembered") {
  TableOptions options = plain_options(1);
  options.expiry.after_steps = 5;
  options.expiry.sweep_steps = 1;
  Table table("t", options, 2, false);
  table.keep_tombstones();
  train(table, range(0, 100), 1.0f);
  for (int step = 2; step <= 6; ++step) train(table, range(0, 10), 1.0f);
  CHECK(table.size() == 100);  // 90 rows are 5 steps old
  train(table, range(0, 10), 1.0f);
  CHECK(table.size() == 10);
  std::vector<int64_t> keys;
  std::vector<uint32_t> steps;
  table.tombstones(&keys, &steps);
  CHECK(keys == range(10, 100));
  CHECK(steps == std::vector<uint32_t>(90, 7));
  CHECK(table.statistics().expired == 90);

  // A key that gets a row again loses its tombstone; the other tombstones are dropped by step.
  train(table, {50}, 1.0f);
  table.forget_tombstones(6);
  CHECK(table.statistics().tombstones == 89);
  table.forget_tombstones(7);
  CHECK(table.statistics().tombstones == 0);
  CHECK(look_up(table, {50}, false) == std::vector<float>{-1});
}

TEST_CASE("table expiry: rare rows leave sooner than frequent ones") {
  TableOptions options = plain_options(1);
  options.expiry.rare_count = 3;
  options.expiry.rare_after_steps = 2;
  options.expiry.sweep_steps = 1;
  Table table("t", options, 1, false);
  train(table, {1, 1, 1, 2, 2, 3}, 1.0f);
  for (int step = 0; step < 20; ++step) train(table, {9, 9, 9}, 1.0f);
  CHECK(sorted(exported(table)).size() == 2);
  CHECK(look_up(table, {1, 2, 3}, false) == std::vector<float>{-3, 0, 0});
}

TEST_CASE(
    "table expiry: a sweep looks at every row once in sweep_steps, and goes on when restored") {
  TableOptions options = plain_options(1);
  options.expiry.after_steps = 1;
  options.expiry.sweep_steps = 10;
  Table table("t", options, 1, false), restored("t", options, 1, false);
  train(table, range(0, 3000), 1.0f);
  for (int step = 0; step < 5; ++step) train(table, {1}, 1.0f);
  const size_t half = table.size();
  CHECK(half < 2500);
  CHECK(half > 1000);
  import_all(restored, exported(table), true);
  const std::vector<uint8_t> state = table.state();
  restored.set_state(state.data(), state.size());
  for (int step = 0; step < 12; ++step) {
    train(table, {1}, 1.0f);
    train(restored, {1}, 1.0f);
    REQUIRE(exported(restored) == exported(table));
    REQUIRE(restored.state() == table.state());
  }
  CHECK(table.size() == 1);
}

}  // namespace hotrow
