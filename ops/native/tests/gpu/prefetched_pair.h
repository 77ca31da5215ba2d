// A table on a GPU and one in memory that run the same steps, and windows for the first.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/gpu/layer_sides.h"
#include "tests/one_table.h"

namespace hotrow {

inline std::vector<int64_t> range(int64_t first, size_t count) {
  std::vector<int64_t> keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

inline void ahead(Table& table, const std::vector<int64_t>& keys) {
  table.prefetch(keys.data(), keys.size());
}

inline void ahead_and_wait(Table& table, const std::vector<int64_t>& keys) {
  ahead(table, keys);
  table.wait_for_prefetch();
}

inline CacheCounts counts_of(const Table& table) { return table.statistics().cache; }

inline Kind kind_of(size_t cache_rows, CachePolicy policy = CachePolicy::kLfu) {
  Kind kind;
  kind.optimizer = OptimizerKind::kSgd;
  kind.cache_rows = cache_rows;
  kind.policy = policy;
  return kind;
}

// A table on a GPU and a table in memory, which run the same steps.
class Pair {
 public:
  explicit Pair(const Kind& kind) : plain({kind}, false), tiered({kind}, true) {}

  Table& table() { return *tiered.all[0]; }
  std::vector<Input> inputs(const std::vector<int64_t>& keys) const {
    Input input;
    input.keys = keys;
    input.samples = keys.size();
    input.gradients.resize(keys.size() * plain.all[0]->width());
    for (size_t i = 0; i < input.gradients.size(); ++i) {
      input.gradients[i] = static_cast<float>(i % 7) - 2.5f;
    }
    return {input};
  }
  // A step. between(): between its forward and its backward pass.
  template <typename Between>
  void train(const std::vector<int64_t>& keys, Between&& between) {
    const std::vector<Input> in = inputs(keys);
    HostSide host(plain, in, Executor());
    DeviceSide device(tiered, in, Executor(), stream);
    const int64_t host_ticket = host.forward(true), ticket = device.forward(true);
    between();
    host.backward(now(host_ticket));
    device.backward(now(ticket));
    REQUIRE(same_bits(host.outputs(), device.outputs()));
  }
  void train(const std::vector<int64_t>& keys) {
    train(keys, [] {});
  }
  // The counts of a step.
  CacheCounts measure(const std::vector<int64_t>& keys) {
    const CacheCounts before = counts_of(table());
    train(keys);
    CacheCounts after = counts_of(table());
    after.hits -= before.hits;
    after.misses -= before.misses;
    after.inserted -= before.inserted;
    after.evicted -= before.evicted;
    return after;
  }
  void check() { check_same(plain, tiered); }

  Stream stream;
  Tables plain, tiered;
};

}  // namespace hotrow
