#include "core/kernels/pooling.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/error_code.h"

namespace hotrow {
namespace {

constexpr size_t kWidth = 2;
const std::vector<float> kRows = {1, 10, 2, 20, 4, 40};  // (3, 2)

// Pools samples of keys at these rows.
std::vector<float> pooled(Combiner combiner, const std::vector<int64_t>& splits,
                          const std::vector<int32_t>& position, const float* weights) {
  Segments segments;
  segments.combiner = combiner;
  segments.keys = position.size();
  segments.samples = combiner == Combiner::kNone ? position.size() : splits.size() - 1;
  segments.row_splits = splits.empty() ? nullptr : splits.data();
  segments.weights = weights;
  check_segments(segments, "f");
  std::vector<float> out(segments.outputs() * kWidth, -1.0f);
  pool_rows(segments, kRows.data(), position.data(), kWidth, out.data());
  return out;
}

}  // namespace

TEST_CASE("pooling: sum, mean and sqrtn of samples of 2, 0 and 1 keys") {
  const std::vector<int64_t> splits = {0, 2, 2, 3};
  const std::vector<int32_t> position = {0, 2, 1};
  CHECK(pooled(Combiner::kSum, splits, position, nullptr) ==
        std::vector<float>{5, 50, 0, 0, 2, 20});
  CHECK(pooled(Combiner::kMean, splits, position, nullptr) ==
        std::vector<float>{2.5f, 25, 0, 0, 2, 20});
  const float root = std::sqrt(2.0f);
  CHECK(pooled(Combiner::kSqrtn, splits, position, nullptr) ==
        std::vector<float>{5 / root, 50 / root, 0, 0, 2, 20});
}

TEST_CASE("pooling: weights as in tf.nn.embedding_lookup_sparse") {
  const std::vector<int64_t> splits = {0, 2, 3};
  const std::vector<int32_t> position = {0, 2, 1};
  const float weights[] = {3, 0.5f, 2};
  CHECK(pooled(Combiner::kSum, splits, position, weights) == std::vector<float>{5, 50, 4, 40});
  CHECK(pooled(Combiner::kMean, splits, position, weights) ==
        std::vector<float>{5 / 3.5f, 50 / 3.5f, 2, 20});
  CHECK(pooled(Combiner::kSqrtn, splits, position, weights) ==
        std::vector<float>{5 / std::sqrt(9.25f), 50 / std::sqrt(9.25f), 2, 20});
}

TEST_CASE("pooling: a sample whose weights add up to nothing gives zeros") {
  const float weights[] = {1, -1, 0};
  CHECK(pooled(Combiner::kMean, {0, 2, 3}, {0, 1, 2}, weights) == std::vector<float>{0, 0, 0, 0});
  CHECK(pooled(Combiner::kSqrtn, {0, 2, 3}, {0, 1, 2}, weights)[2] == 0.0f);
}

TEST_CASE("pooling: without a combiner or with one key a sample, rows are copied") {
  CHECK(pooled(Combiner::kNone, {}, {2, 0, 2}, nullptr) == std::vector<float>{4, 40, 1, 10, 4, 40});
  Segments one;
  one.combiner = Combiner::kMean;
  one.keys = one.samples = 2;
  check_segments(one, "f");
  const int32_t position[] = {1, 1};
  std::vector<float> out(4);
  pool_rows(one, kRows.data(), position, kWidth, out.data());
  CHECK(out == std::vector<float>{2, 20, 2, 20});
}

TEST_CASE("pooling: row_splits that do not ascend from 0 to the number of keys are refused") {
  for (const std::vector<int64_t>& splits :
       {std::vector<int64_t>{1, 2, 3}, {0, 2, 2}, {0, 2, 4}, {0, 4, 3}, {0, -1, 3}, {-1, 0, 3}}) {
    CAPTURE(splits[1]);
    CHECK(error_code([&] { pooled(Combiner::kSum, splits, {0, 1, 2}, nullptr); }) ==
          Code::kInvalidArgument);
  }
  Segments segments;
  segments.combiner = Combiner::kSum;
  segments.keys = 3;
  segments.samples = 2;
  CHECK(error_code([&] { check_segments(segments, "f"); }) == Code::kInvalidArgument);
}

}  // namespace hotrow
