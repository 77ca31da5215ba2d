#include "core/base/dispatch.h"

#include <doctest/doctest.h>

#include <random>

namespace hotrow {

TEST_CASE("dispatch: the owner is the mathematical modulus, for keys of any sign") {
  CHECK(owner_of(7, 4, false) == 3);
  CHECK(owner_of(-1, 4, false) == 3);
  CHECK(owner_of(-4, 4, false) == 0);
  CHECK(owner_of(INT64_MIN, 3, false) == 1);  // -2^63 = 3 * (-3074457345618258603) + 1
  CHECK(owner_of(INT64_MAX, 10, false) == 7);
  CHECK(owner_of(INT64_MIN, 1, false) == 0);
}

TEST_CASE("dispatch: hashed owners spread keys that share their residue") {
  std::vector<int> counts(8);
  for (int64_t key = 0; key < 8000; ++key) {
    CHECK(owner_of(8 * key, 8, false) == 0);
    ++counts[static_cast<size_t>(owner_of(8 * key, 8, true))];
  }
  for (const int count : counts) {
    CHECK(count > 800);
    CHECK(count < 1200);
  }
}

TEST_CASE("dispatch: groups hold each key once, in order") {
  std::mt19937_64 random(1);
  Dispatch dispatch;
  for (const int32_t shards : {1, 2, 7, 64}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}}) {
      const bool hashed = shards == 7;
      std::vector<int64_t> keys(count);
      for (int64_t& key : keys) key = static_cast<int64_t>(random()) >> (random() % 64);
      dispatch.group(keys.data(), count, shards, hashed);
      REQUIRE(dispatch.counts().size() == static_cast<size_t>(shards));
      size_t i = 0;
      for (int32_t shard = 0; shard < shards; ++shard) {
        for (int64_t n = 0; n < dispatch.counts()[static_cast<size_t>(shard)]; ++n, ++i) {
          REQUIRE(owner_of(dispatch.grouped()[i], shards, hashed) == shard);
          REQUIRE(dispatch.grouped()[i] == keys[static_cast<size_t>(dispatch.order()[i])]);
          if (n > 0) REQUIRE(dispatch.order()[i - 1] < dispatch.order()[i]);
        }
      }
      REQUIRE(i == count);
    }
  }
}

}  // namespace hotrow
