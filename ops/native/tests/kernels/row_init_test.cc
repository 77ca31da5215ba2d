#include "core/kernels/row_init.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

namespace hotrow {
namespace {

constexpr size_t kWidth = 16;

std::vector<float> row(InitKind kind, float scale, uint64_t seed, uint64_t table, int64_t key) {
  std::vector<float> values(kWidth);
  initialize_row({kind, scale, seed, table}, key, kWidth, values.data());
  return values;
}

}  // namespace

TEST_CASE("row init: a row depends on seed, table and key and on nothing else") {
  for (const InitKind kind : {InitKind::kUniform, InitKind::kNormal}) {
    const std::vector<float> one = row(kind, 1, 2, 3, 4);
    CHECK(one == row(kind, 1, 2, 3, 4));
    CHECK(one != row(kind, 1, 9, 3, 4));
    CHECK(one != row(kind, 1, 2, 9, 4));
    CHECK(one != row(kind, 1, 2, 3, 9));
    // The first values do not depend on how many there are.
    std::vector<float> narrow(3);
    initialize_row({kind, 1, 2, 3}, 4, 3, narrow.data());
    CHECK(std::equal(narrow.begin(), narrow.end(), one.begin()));
  }
  CHECK(row(InitKind::kConstant, 0.25f, 2, 3, 4) == std::vector<float>(kWidth, 0.25f));
}

TEST_CASE("row init: values have the mean, the spread and the range they are asked to have") {
  double sums[2] = {}, squares[2] = {};
  float largest = 0;
  constexpr int kKeys = 20000;
  for (int key = 0; key < kKeys; ++key) {
    for (const InitKind kind : {InitKind::kUniform, InitKind::kNormal}) {
      for (const float value : row(kind, 0.5f, 1, 1, key - kKeys / 2)) {
        const size_t i = kind == InitKind::kNormal;
        sums[i] += value;
        squares[i] += static_cast<double>(value) * value;
        if (i == 0) largest = std::max(largest, std::fabs(value));
        REQUIRE(std::isfinite(value));
      }
    }
  }
  const double count = kKeys * static_cast<double>(kWidth);
  CHECK(largest <= 0.5f);
  CHECK(largest > 0.499f);
  // Five deviations of the means of 320,000 draws.
  CHECK(std::fabs(sums[0] / count) < 5 * 0.2887 / std::sqrt(count));
  CHECK(std::fabs(sums[1] / count) < 5 * 0.5 / std::sqrt(count));
  CHECK(squares[0] / count == doctest::Approx(0.25 / 3).epsilon(0.01));
  CHECK(squares[1] / count == doctest::Approx(0.25).epsilon(0.015));
}

}  // namespace hotrow
