// Distinct keys on the device against Unique and Dispatch.
#include "core/gpu/kernels/unique.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/base/dispatch.h"
#include "core/base/unique.h"
#include "tests/error_code.h"
#include "tests/gpu/device_array.h"

namespace hotrow {
namespace {

using Tables = std::vector<std::vector<int64_t>>;

struct Batch {
  explicit Batch(const Tables& tables) {
    begins.push_back(0);
    for (const auto& table : tables) {
      keys.insert(keys.end(), table.begin(), table.end());
      begins.push_back(static_cast<uint32_t>(keys.size()));
    }
  }
  std::vector<int64_t> keys;
  std::vector<uint32_t> begins;
};

// Compares everything with the CPU's, table by table.
void compare(const Tables& tables, int32_t shards, bool hashed) {
  const Batch batch(tables);
  const size_t count = batch.keys.size();
  const DeviceArray<int64_t> keys(batch.keys);
  const DeviceArray<uint32_t> begins(batch.begins);
  DeviceArena sizes;
  const auto take = [&](DeviceArena& arena) {
    struct Outputs {
      DeviceUnique unique;
      DevicePositions positions;
      DeviceOwners owners;
    } out{DeviceUnique::take(arena, count, tables.size()), DevicePositions::take(arena, count),
          DeviceOwners::take(arena, count, tables.size() * static_cast<size_t>(shards))};
    return out;
  };
  take(sizes);
  const Scratch memory(sizes.used());
  DeviceArena arena(memory.data(), memory.bytes());
  const auto [unique, positions, owners] = take(arena);

  const Scratch scratch(device_unique_scratch(count));
  device_unique({keys.data(), count, begins.data(), tables.size()}, unique, scratch.data(),
                scratch.bytes(), kStream);
  const Scratch sort(device_positions_scratch(count));
  device_positions(unique, count, positions, sort.data(), sort.bytes(), kStream);
  const size_t groups = tables.size() * static_cast<size_t>(shards);
  const Scratch more(device_owners_scratch(count, tables.size(), static_cast<size_t>(shards)));
  // The last of several tables is one owner's.
  std::vector<DeviceOwnerRule> rules(tables.size(), {-1, hashed ? 1u : 0u});
  if (tables.size() > 1) rules.back().owner = shards - 1;
  device_owners(unique, count, tables.size(), shards, rules.data(), owners, more.data(),
                more.bytes(), kStream);

  const auto first = read_device(unique.table_first, tables.size() + 1);
  const auto got_keys = read_device(unique.keys, count);
  const auto hashes = read_device(unique.hashes, count);
  const auto counts = read_device(unique.counts, count + 1);
  const auto inverse = read_device(unique.inverse, count);
  const auto group_begins = read_device(positions.begins, count + 1);
  const auto order = read_device(positions.order, count);
  const auto group_first = read_device(owners.group_first, groups + 1);
  const auto grouped = read_device(owners.grouped, count);
  const auto owner_order = read_device(owners.order, count);
  size_t wrong = 0, u = 0, at = 0;
  Unique expected;
  Dispatch dispatch;
  for (size_t t = 0; t < tables.size(); ++t) {
    expected.run(tables[t].data(), tables[t].size());
    REQUIRE(first[t] == u);
    REQUIRE(u + expected.size() <= count);
    for (size_t i = 0; i < expected.size(); ++i) {
      wrong += got_keys[u + i] != expected.keys()[i];
      wrong += hashes[u + i] != expected.hashes()[i];
      wrong += counts[u + i] != expected.counts()[i];
    }
    for (size_t i = 0; i < tables[t].size(); ++i) {
      wrong += inverse[at + i] != expected.inverse()[i] + static_cast<int32_t>(u);
    }
    dispatch.group(expected.keys(), expected.size(), shards, hashed);
    const bool one_owner = rules[t].owner >= 0;
    size_t place = u;
    for (size_t s = 0; s < static_cast<size_t>(shards); ++s) {
      wrong += group_first[t * static_cast<size_t>(shards) + s] != place;
      if (!one_owner) place += static_cast<size_t>(dispatch.counts()[s]);
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      const size_t from = one_owner ? i : static_cast<size_t>(dispatch.order()[i]);
      wrong += grouped[u + i] != expected.keys()[from];
      wrong += owner_order[u + i] != static_cast<uint32_t>(from) + u;
    }
    u += expected.size();
    at += tables[t].size();
  }
  CHECK(wrong == 0);
  CHECK(first.back() == u);
  CHECK(group_first.back() == u);
  // Positions by distinct key, ascending in it.
  std::vector<uint32_t> next(group_begins.begin(), group_begins.end() - 1);
  for (size_t i = 0; i < count; ++i) {
    wrong += order[next[static_cast<size_t>(inverse[i])]++] != i;
  }
  for (size_t k = 0; k < u; ++k) wrong += next[k] != group_begins[k + 1];
  for (size_t k = u; k <= count; ++k) wrong += group_begins[k] != count;
  for (size_t k = u; k <= count; ++k) wrong += counts[k] != 0;
  CHECK(wrong == 0);
}

std::vector<int64_t> skewed(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> keys(count);
  for (int64_t& key : keys) {
    const double x = std::uniform_real_distribution<double>(0, 1)(random);
    key = static_cast<int64_t>(static_cast<double>(count) * x * x * x * x) -
          static_cast<int64_t>(count / 4);
  }
  return keys;
}

}  // namespace

TEST_CASE("device unique: distinct keys, positions and owners are the CPU's") {
  const int64_t least = std::numeric_limits<int64_t>::min();
  const std::vector<int64_t> same(700, -3), edge{least, -1, 0, least, INT64_MAX, 1, -1, least + 1};
  for (const bool hashed : {false, true}) {
    compare({{}}, 1, hashed);
    compare({{}, {}}, 3, hashed);
    compare({{7}}, 2, hashed);
    compare({edge}, 5, hashed);
    compare({same}, 4, hashed);
    // The same keys in several tables are different rows.
    compare({edge, {}, edge, same, edge, {}}, 3, hashed);
    // Many tables of the same keys, whose slots are close together.
    compare(Tables(40, {1, 2, 3, -1, 1}), 2, hashed);
    compare({skewed(5000 * kScale, 1)}, 8, hashed);
    compare({skewed(777, 2), skewed(3000 * kScale, 3), skewed(1, 4)}, 7, hashed);
  }
}

TEST_CASE("device unique: every order of threads gives the same") {
  for (uint64_t seed = 1; seed <= (kLess ? 5 : 20); ++seed) {
#if defined(HOTROW_SIMT)
    simt::set_seed(seed * 1000);
#endif
    compare({skewed(900, seed), skewed(300, seed)}, 2, false);
  }
}

TEST_CASE("device unique: too many keys and no shards are refused") {
  CHECK(error_code([] { device_unique_scratch(size_t{1} << 31); }) == Code::kInvalidArgument);
  CHECK(error_code([] { device_owners({}, 0, 1, 0, nullptr, {}, nullptr, 0, kStream); }) ==
        Code::kInvalidArgument);
}

}  // namespace hotrow
