#include "core/base/hash.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

namespace hotrow {

TEST_CASE("hash: mix64 is the finalizer of splitmix64") {
  // The first outputs of the published generator for seed 0: its state grows by the constant.
  CHECK(mix64(0) == 0xe220a8397b1dcdafULL);
  CHECK(mix64(0x9e3779b97f4a7c15ULL) == 0x6e789e6aa1b965f4ULL);
  CHECK(mix64(0x9e3779b97f4a7c15ULL * 2) == 0x06c45d188009454fULL);
}

TEST_CASE("hash: unmix64 is the inverse of mix64") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t key = random() >> (i % 64);
    CHECK(unmix64(mix64(key)) == key);
    CHECK(mix64(unmix64(key)) == key);
  }
}

TEST_CASE("hash: each bit of a key changes each bit of its hash about half of the time") {
  std::mt19937_64 random(1);
  constexpr int kKeys = 2000;
  int changed[64] = {};
  for (int i = 0; i < kKeys; ++i) {
    const uint64_t key = random() >> (i % 64);
    const uint64_t difference = mix64(key) ^ mix64(key ^ (uint64_t{1} << (i % 64)));
    for (int bit = 0; bit < 64; ++bit) changed[bit] += static_cast<int>(difference >> bit & 1);
  }
  // Six deviations of a fair coin: 0.5 * sqrt(2000) is 22.4.
  for (const int count : changed) {
    CHECK(count > kKeys / 2 - 135);
    CHECK(count < kKeys / 2 + 135);
  }
}

TEST_CASE("hash: combining depends on the order") {
  CHECK(combine64(1, 2) != combine64(2, 1));
  CHECK(combine64(1, 2) != combine64(1, 3));
  std::set<uint64_t> seen;
  for (uint64_t a = 0; a < 100; ++a) {
    for (uint64_t b = 0; b < 100; ++b) seen.insert(combine64(a, b));
  }
  CHECK(seen.size() == 10000);
}

}  // namespace hotrow
