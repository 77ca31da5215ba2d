#include "core/serving/layers_to_merge.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace hotrow {
namespace {

// Merges as long as there is something to merge; returns the rows that were copied. overlap: the
// share of a merged layer's rows that remain, as others are of the same keys.
size_t merge_all(std::vector<size_t>* rows, double overlap = 1.0) {
  size_t copied = 0;
  for (;;) {
    const MergeRange range = layers_to_merge(*rows);
    if (range.first == range.last) return copied;
    REQUIRE(range.first >= 4);
    REQUIRE(range.last <= rows->size());
    REQUIRE(range.last >= range.first + 2);
    const auto first = rows->begin() + static_cast<ptrdiff_t>(range.first);
    const auto last = rows->begin() + static_cast<ptrdiff_t>(range.last);
    const size_t sum = std::accumulate(first, last, size_t{0});
    copied += sum;
    *first = static_cast<size_t>(static_cast<double>(sum) * overlap);
    rows->erase(first + 1, last);
  }
}

}  // namespace

TEST_CASE("layers to merge: few layers stay as they are") {
  for (size_t count = 0; count <= 8; ++count) {
    std::vector<size_t> rows(count, 100);
    CHECK(merge_all(&rows) == 0);
  }
}

TEST_CASE("layers to merge: ten thousand cuts leave few layers, and rows are seldom copied") {
  std::mt19937 random(7);
  for (const bool equal : {true, false}) {
    for (const double overlap : {1.0, 0.5}) {
      std::vector<size_t> rows;
      size_t added = 0, copied = 0, most = 0;
      for (int cut = 0; cut < 10'000; ++cut) {
        rows.insert(rows.begin(), equal ? 1000 : random() % 3000);
        added += rows.front();
        copied += merge_all(&rows, overlap);
        most = std::max(most, rows.size());
      }
      CHECK(most <= 20);
      CHECK(copied <= 14 * added);
    }
  }
}

TEST_CASE("layers to merge: layers without rows are merged, too") {
  std::vector<size_t> rows(100, 0);
  merge_all(&rows);
  CHECK(rows.size() <= 8);
  rows = std::vector<size_t>(12, 0);
  rows.back() = 1'000'000;
  merge_all(&rows);
  CHECK(rows.size() <= 8);
}

}  // namespace hotrow
