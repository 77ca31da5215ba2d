// Expired keys: kept only for exports, bounded, and restored with what was forgotten.
#include <doctest/doctest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "core/table/table.h"
#include "tests/one_table.h"

namespace hotrow {
namespace {

TableOptions expiring(uint64_t tombstones) {
  TableOptions options = plain_options(1);
  options.expiry.after_steps = 1;
  options.expiry.sweep_steps = 1;
  options.expiry.tombstones = tombstones;
  return options;
}

std::vector<int64_t> keys_of_step(int64_t step, int64_t count) {
  std::vector<int64_t> keys(static_cast<size_t>(count));
  std::iota(keys.begin(), keys.end(), step * count);
  return keys;
}

// Each step trains new keys; those of step s expire at step s + 2.
void train_steps(Table& table, int64_t first, int64_t last, int64_t keys) {
  for (int64_t step = first; step <= last; ++step) train(table, keys_of_step(step, keys), 1.0f);
}

std::pair<std::vector<int64_t>, std::vector<uint32_t>> tombstones_of(const Table& table) {
  std::pair<std::vector<int64_t>, std::vector<uint32_t>> found;
  table.tombstones(&found.first, &found.second);
  return found;
}

}  // namespace

TEST_CASE("tombstones: without an export none are kept, and the table says so") {
  Table table("t", expiring(1000), 1, false);
  train_steps(table, 1, 2, 10);
  CHECK(table.forgotten_step() == 0);  // nothing has expired
  train_steps(table, 3, 6, 10);
  CHECK(table.statistics().expired == 40);
  CHECK(table.statistics().tombstones == 0);
  CHECK(table.forgotten_step() == 6);

  table.keep_tombstones();
  train_steps(table, 7, 8, 10);
  CHECK(table.forgotten_step() == 6);
  CHECK(tombstones_of(table).first.front() == 50);  // keys of steps 5 and 6
  CHECK(tombstones_of(table).first.back() == 69);
  CHECK(tombstones_of(table).second.size() == 20);
}

TEST_CASE("tombstones: beyond the most, the older half is dropped") {
  Table table("t", expiring(100), 2, false);
  table.keep_tombstones();
  train_steps(table, 1, 12, 10);
  CHECK(table.statistics().tombstones == 100);  // of steps 3 to 12
  CHECK(table.forgotten_step() == 0);
  train_steps(table, 13, 13, 10);
  CHECK(table.statistics().tombstones == 50);
  CHECK(table.statistics().tombstones_dropped == 60);
  CHECK(table.forgotten_step() == 8);
  CHECK(tombstones_of(table).second.size() == 50);
  for (const uint32_t step : tombstones_of(table).second) CHECK(step > 8);

  Table none("t", expiring(0), 2, false);
  none.keep_tombstones();
  train_steps(none, 1, 5, 10);
  CHECK(none.statistics().tombstones == 0);
  CHECK(none.statistics().tombstones_dropped == 30);
  CHECK(none.forgotten_step() == 5);
}

TEST_CASE("tombstones: their memory is that of the map, and goes with them") {
  Table table("t", expiring(1 << 20), 1, false);
  table.keep_tombstones();
  train_steps(table, 1, 1, 10);
  train_steps(table, 2, 30, 2000);
  const size_t most = table.bytes();
  const size_t count = table.statistics().tombstones;
  CHECK(count == 10 + 2000 * 27);
  table.forget_tombstones(30);
  CHECK(table.statistics().tombstones == 0);
  CHECK(most - table.bytes() >= 16 * count);
  CHECK(most - table.bytes() <= 33 * count + 32 * 4096);
}

TEST_CASE("tombstones: a state has them and the step up to which they were forgotten") {
  Table table("t", expiring(1000), 1, false);
  train_steps(table, 1, 4, 10);
  table.keep_tombstones();
  train_steps(table, 5, 7, 10);
  table.forget_tombstones(5);
  CHECK(table.statistics().tombstones == 20);
  const std::vector<uint8_t> state = table.state();
  Table other("t", expiring(1000), 1, false);
  other.set_state(state.data(), state.size());
  CHECK(other.forgotten_step() == 5);
  CHECK(tombstones_of(other) == tombstones_of(table));
  CHECK(other.state() == state);
  // The other table keeps none of its own.
  train_steps(other, 8, 8, 10);
  train_steps(other, 9, 10, 10);
  CHECK(other.statistics().tombstones == 0);
  CHECK(other.forgotten_step() == 10);

  Table merged("t", expiring(1000), 3, true);
  const std::vector<uint8_t> later = other.state();
  merged.merge_states({{state.data(), state.size(), true}, {later.data(), later.size(), false}});
  CHECK(merged.forgotten_step() == 10);
  other.clear();
  CHECK(other.forgotten_step() == 0);
}

TEST_CASE("tombstones: rows that are removed by hand leave some once exports are expected") {
  Table table("t", expiring(1000), 1, false);
  train_steps(table, 1, 1, 10);
  const std::vector<int64_t> keys = keys_of_step(1, 10);
  CHECK(table.bury_rows(keys.data(), 2) == 2);
  CHECK(table.forgotten_step() == 2);
  table.keep_tombstones();
  CHECK(table.forgotten_step() == 1);  // an export of this step does not have the rows
  CHECK(table.bury_rows(keys.data(), 4) == 2);
  CHECK(tombstones_of(table).first == std::vector<int64_t>{12, 13});
  CHECK(tombstones_of(table).second == std::vector<uint32_t>{2, 2});
  table.forget_tombstones(9);  // steps to come are not forgotten
  CHECK(table.forgotten_step() == 1);
  CHECK(table.statistics().tombstones == 2);
}

}  // namespace hotrow
