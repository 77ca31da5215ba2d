// Keys that programs beside the benchmarks look up: Zipf(1.05) over the rows of a table.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/base/hash.h"

inline constexpr double kSkew = 1.05;

// Ranks by the inverse of the summed probabilities.
class Zipf {
 public:
  explicit Zipf(size_t rows) : sums_(rows) {
    double sum = 0;
    for (size_t r = 0; r < rows; ++r)
      sums_[r] = sum += std::pow(static_cast<double>(r + 1), -kSkew);
    for (double& s : sums_) s /= sum;
  }
  template <typename Random>
  size_t operator()(Random& random) const {
    const double u = std::uniform_real_distribution<double>()(random);
    return static_cast<size_t>(std::lower_bound(sums_.begin(), sums_.end() - 1, u) - sums_.begin());
  }
  // Of the most frequent rows.
  double share(size_t rows) const {
    return rows == 0 ? 0 : sums_[std::min(rows, sums_.size()) - 1];
  }

 private:
  std::vector<double> sums_;
};

inline int64_t key_of(size_t rank) { return static_cast<int64_t>(hotrow::mix64(rank) >> 1); }
