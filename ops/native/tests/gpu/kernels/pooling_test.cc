// Gather and pooling on the device against the CPU's kernels, bit for bit.
#include "core/gpu/kernels/pooling.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "tests/gpu/device_lines.h"

namespace hotrow {
namespace {

// A feature with its own table, on both sides.
struct Case {
  size_t width;
  RowType type;
  Combiner combiner;
  bool weighted;
  std::vector<size_t> lengths;  // of samples; empty: a key each
  size_t gap = 0;
};

struct Side {
  std::unique_ptr<Lines> lines;
  Segments segments;
  std::vector<int64_t> splits;
  std::vector<float> weights;
  std::unique_ptr<DeviceArray<int64_t>> device_splits;
  std::unique_ptr<DeviceArray<float>> device_weights;
  std::unique_ptr<DeviceArray<float>> pooled;
  std::vector<float> expected;
};

constexpr size_t kRows = 40;
constexpr size_t kPlainKeys = 70;

// Runs all cases in one launch; then the way back.
void compare(const std::vector<Case>& cases, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Side> sides(cases.size());
  std::vector<DeviceFeature> features(cases.size());
  std::vector<const std::byte*> lines, cpu_lines;  // by distinct key
  std::vector<const std::byte*> defaults;
  std::vector<int32_t> inverse;
  for (size_t f = 0; f < cases.size(); ++f) {
    const Case& c = cases[f];
    Side& side = sides[f];
    DeviceFeature& feature = features[f];
    const LineLayout layout{c.width, c.type, RowType::kFloat32, 0, 0};
    // The last line is the default one.
    side.lines = std::make_unique<Lines>(layout, Optimizer(), kRows + 1, c.gap, seed + 1);
    Segments& s = side.segments;
    s.combiner = c.combiner;
    s.samples = s.keys = c.lengths.empty() ? kPlainKeys : 0;
    if (!c.lengths.empty()) {
      side.splits.push_back(0);
      for (size_t length : c.lengths) {
        side.splits.push_back(side.splits.back() + static_cast<int64_t>(length));
      }
      s.samples = c.lengths.size();
      s.keys = static_cast<size_t>(side.splits.back());
      s.row_splits = side.splits.data();
      side.device_splits = std::make_unique<DeviceArray<int64_t>>(side.splits);
    }
    if (c.weighted) {
      for (size_t i = 0; i < s.keys; ++i) {
        side.weights.push_back(static_cast<float>(static_cast<int>(random() % 9) - 3) * 0.7f);
      }
      s.weights = side.weights.data();
      side.device_weights = std::make_unique<DeviceArray<float>>(side.weights);
    }
    feature.segments = s;
    if (s.row_splits != nullptr) feature.segments.row_splits = side.device_splits->data();
    if (s.weights != nullptr) feature.segments.weights = side.device_weights->data();
    feature.first_key = inverse.size();
    feature.width = c.width;
    feature.weights = c.type;
    feature.default_line = side.lines->device_line(kRows);
    side.pooled = std::make_unique<DeviceArray<float>>(s.outputs() * c.width);
    feature.pooled = side.pooled->data();
    const size_t first = lines.size();
    for (size_t u = 0; u < kRows; ++u) {
      const bool missing = u % 7 == 3;
      lines.push_back(missing ? nullptr : side.lines->device_line(u));
      cpu_lines.push_back(side.lines->line(missing ? kRows : u));
    }
    for (size_t i = 0; i < s.keys; ++i) {
      inverse.push_back(static_cast<int32_t>(first + random() % kRows));
    }
  }
  const DeviceArray<const std::byte*> device_lines(lines);
  const DeviceArray<int32_t> device_inverse(inverse);
  const Scratch scratch(device_pool_scratch(features.size()));
  device_pool(features.data(), features.size(), device_lines.data(), device_inverse.data(),
              scratch.data(), scratch.bytes(), kStream);

  bool shares = false;
  std::vector<std::unique_ptr<DeviceArray<float>>> gradients;
  std::vector<const float*> gradient_pointers;
  for (size_t f = 0; f < cases.size(); ++f) {
    const Segments& s = sides[f].segments;
    const size_t width = cases[f].width;
    INFO("feature ", f, " width ", width);
    std::vector<float> expected(s.outputs() * width);
    std::vector<const std::byte*> of_key;
    for (size_t i = 0; i < s.keys; ++i) {
      of_key.push_back(cpu_lines[static_cast<size_t>(inverse[features[f].first_key + i])]);
    }
    const LineLayout& layout = sides[f].lines->layout();
    if (s.plain()) {
      kernels().gather(layout, of_key.data(), s.keys, expected.data());
    } else {
      pool(
          s, 0, s.samples, width, expected.data(),
          [&](size_t i, float factor, float* out) {
            kernels().add(layout, of_key[i], factor, out);
          },
          [&](float divisor, float* out) { kernels().divide(width, divisor, out); });
      shares = true;
    }
    const std::vector<float> got = sides[f].pooled->read();
    CHECK(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(float)) == 0);
    gradients.push_back(std::make_unique<DeviceArray<float>>(s.outputs() * width));
    gradient_pointers.push_back(gradients.back()->data());
  }

  DeviceArena sizes;
  DeviceTerms::take(sizes, inverse.size(), shares);
  const Scratch memory(sizes.used());
  DeviceArena arena(memory.data(), memory.bytes());
  const DeviceTerms terms = DeviceTerms::take(arena, inverse.size(), shares);
  device_terms(features.data(), gradient_pointers.data(), features.size(), terms, scratch.data(),
               scratch.bytes(), kStream);
  const auto rows = read_device(terms.rows, inverse.size());
  const auto got_shares =
      shares ? read_device(terms.shares, inverse.size()) : std::vector<float>(inverse.size(), 1.0f);
  size_t wrong = 0;
  for (size_t f = 0; f < cases.size(); ++f) {
    const Segments& s = sides[f].segments;
    for (size_t b = 0; b < s.outputs(); ++b) {
      const float* row = gradient_pointers[f] + b * cases[f].width;
      const bool plain = s.plain();
      const float divisor = plain ? 1.0f : divisor_of(s, b);
      for (size_t i = plain ? b : s.begin_of(b); i < (plain ? b + 1 : s.begin_of(b + 1)); ++i) {
        const size_t at = features[f].first_key + i;
        wrong += rows[at] != (divisor == 0.0f ? nullptr : row);
        const float share = plain ? 1.0f : divisor == 0.0f ? 0.0f : s.weight(i) / divisor;
        wrong += std::memcmp(&got_shares[at], &share, sizeof(share)) != 0;
      }
    }
  }
  CHECK(wrong == 0);
}

const RowType kTypes[] = {RowType::kFloat32, RowType::kBfloat16, RowType::kFloat16};
const Combiner kCombiners[] = {Combiner::kNone, Combiner::kSum, Combiner::kMean, Combiner::kSqrtn};

}  // namespace

TEST_CASE("device pooling: every combiner, type and width, all features in one launch") {
  std::vector<Case> cases;
  const std::vector<size_t> lengths{3, 0, 1, 17, 2, 0, 40, 5};
  const size_t widths[] = {1, 3, 4, 7, 8, 16, 17, 32, 63, 64, 100, 128, 200};
  size_t n = 0;
  for (RowType type : kTypes) {
    for (Combiner combiner : kCombiners) {
      for (bool weighted : {false, true}) {
        for (size_t width : widths) {
          // Also lines at addresses that are multiples of 4 only.
          const size_t gap = n++ % 3 * 4;
          if (n % 2 == 0) cases.push_back({width, type, combiner, weighted, lengths, gap});
          if (n % 3 == 0) cases.push_back({width, type, combiner, weighted, {}, gap});
        }
      }
    }
  }
  compare(cases, 5);
}

TEST_CASE("device pooling: long samples, wide rows, one sample, none") {
  compare({{1024, RowType::kFloat32, Combiner::kMean, true, {9, 100}},
           {1000, RowType::kBfloat16, Combiner::kSum, false, {1, 0, 2}},
           {1030, RowType::kFloat16, Combiner::kNone, false, {}}},
          6);
  compare({{8, RowType::kFloat32, Combiner::kSqrtn, true, {5000 * kScale, 1}}}, 7);
  compare({{16, RowType::kFloat32, Combiner::kMean, false, {0, 0, 0}}}, 8);
  compare({}, 9);
}

TEST_CASE("device pooling: features without samples beside others") {
  const DeviceArray<float> out(4);
  DeviceFeature empty;
  empty.width = 4;
  empty.pooled = out.data();
  const Scratch scratch(device_pool_scratch(1));
  device_pool(&empty, 1, nullptr, nullptr, scratch.data(), scratch.bytes(), kStream);
  const std::vector<float> untouched = out.read();
  uint32_t bits;
  std::memcpy(&bits, &untouched[0], 4);
  CHECK(bits == 0xa5a5a5a5u);
}

TEST_CASE("device pooling: row_splits that lie read no memory of others") {
  const std::vector<int64_t> splits{0, 900, -5, 3, INT64_MAX, INT64_MIN};
  const DeviceArray<int64_t> device_splits(splits);
  const Lines lines({4, RowType::kFloat32, RowType::kFloat32, 0, 0}, Optimizer(), 3, 0, 1);
  Lines& rows = const_cast<Lines&>(lines);
  const DeviceArray<const std::byte*> pointers(
      std::vector<const std::byte*>{rows.device_line(0), rows.device_line(1)});
  const DeviceArray<int32_t> inverse(std::vector<int32_t>{0, 1, 0});
  const DeviceArray<float> out(5 * 4);
  DeviceFeature feature;
  feature.segments = {Combiner::kSum, 3, 5, device_splits.data(), nullptr};
  feature.width = 4;
  feature.pooled = out.data();
  const Scratch scratch(device_pool_scratch(1));
  device_pool(&feature, 1, pointers.data(), inverse.data(), scratch.data(), scratch.bytes(),
              kStream);
  const auto got = out.read();
  CHECK(got[4] == 0.0f);  // from 900, cut to 3, to -5
  CHECK(std::isfinite(got[0]));
}

}  // namespace hotrow
