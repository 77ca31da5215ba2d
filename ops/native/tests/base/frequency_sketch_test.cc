// The count-min sketch of caches: never below the true count, exact without collisions, and halved.
#include "core/base/frequency_sketch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

namespace hotrow {
namespace {

TEST_CASE("frequency sketch: counts are never less than the truth, and stop at the most") {
  std::mt19937_64 random(7);
  FrequencySketch<7> sketch = {};
  std::map<uint64_t, uint32_t> truth;
  for (int i = 0; i < 400; ++i) {
    const uint64_t hash = mix64(random() % 60);
    sketch.raise(hash, sketch.frequency(hash) + 1);
    ++truth[hash];
    for (const auto& [key, count] : truth) {
      REQUIRE(sketch.frequency(key) >= std::min(count, kMostCount));
    }
  }
  CHECK(*std::max_element(std::begin(sketch.words), std::end(sketch.words)) > 0);
}

TEST_CASE("frequency sketch: a key alone has its own count, and decay halves it") {
  FrequencySketch<7> sketch = {};
  const uint64_t hash = mix64(42);
  for (uint32_t count = 1; count <= 20; ++count) {
    sketch.raise(hash, sketch.frequency(hash) + 1);
    CHECK(sketch.frequency(hash) == std::min(count, kMostCount));
  }
  for (const uint32_t left : {7u, 3u, 1u, 0u}) {
    sketch.decay();
    CHECK(sketch.frequency(hash) == left);
  }
}

TEST_CASE("frequency sketch: counters of a key lie within the sketch, whatever its size") {
  std::mt19937_64 random(8);
  for (int i = 0; i < 10000; ++i) {
    const uint64_t mixed = random();
    for (const uint32_t words : {1u, 7u, 14u}) {
      CHECK(sketch_counter(mixed, 0, words) < words * 16);
      CHECK(sketch_counter(mixed, 1, words) < words * 16);
    }
  }
}

}  // namespace
}  // namespace hotrow
