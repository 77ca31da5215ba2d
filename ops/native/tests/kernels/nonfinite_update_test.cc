// Rows that an update would make NaN or infinite stay as they were, bit for bit.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/kernels/finite_lines.h"
#include "tests/kernels/kernel_sets.h"

namespace hotrow {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kRows = 40;

const OptimizerKind kKinds[] = {OptimizerKind::kSgd,     OptimizerKind::kMomentum,
                                OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
                                OptimizerKind::kAdam,    OptimizerKind::kFtrl};

// Whether the optimizer squares gradients: 1e30 is then too large for its state.
bool squares(OptimizerKind kind) {
  return kind != OptimizerKind::kSgd && kind != OptimizerKind::kMomentum;
}

struct Lines {
  LineLayout layout;
  std::vector<std::byte> arena;
  std::vector<std::byte*> lines;

  Lines(const Kernels& kernels, const Optimizer& optimizer, const LineLayout& given)
      : layout(given), arena(kRows * stride()) {
    std::vector<float> weights(layout.width);
    for (size_t u = 0; u < kRows; ++u) {
      std::byte* const line = arena.data() + u * stride();
      for (size_t j = 0; j < layout.width; ++j) {
        weights[j] = 0.01f * static_cast<float>(u) - 0.003f * static_cast<float>(j % 7);
      }
      const RowHeader header{static_cast<int64_t>(u), 0, 0};
      std::memcpy(line, &header, sizeof(header));
      kernels.initialize(layout, optimizer, weights.data(), line);
      lines.push_back(line);
    }
  }
  size_t stride() const { return (sizeof(RowHeader) + layout.bytes() + 7) / 8 * 8; }
  std::vector<std::byte> row(size_t u) const {
    const std::byte* const line = arena.data() + u * stride();
    return {line, line + sizeof(RowHeader) + layout.bytes()};
  }
  size_t nonfinite() const {
    size_t found = 0;
    for (size_t u = 0; u < kRows; ++u) {
      const std::vector<std::byte> bytes = row(u);
      found += count_nonfinite_lines(layout, bytes.data() + sizeof(RowHeader), 1);
    }
    return found;
  }
};

// Two gradient rows for each row.
struct Gradients {
  std::vector<float> values;
  std::vector<const float*> rows;
  std::vector<uint32_t> begins{0};

  Gradients(size_t width, unsigned seed) : values(2 * kRows * width) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random);
    for (size_t i = 0; i < 2 * kRows; ++i) rows.push_back(values.data() + i * width);
    for (uint32_t u = 1; u <= kRows; ++u) begins.push_back(2 * u);
  }
  RowGradients view() const { return {rows.data(), nullptr, begins.data()}; }
  float& at(size_t u, size_t which, size_t column) {
    return values[(2 * u + which) * (values.size() / (2 * kRows)) + column];
  }
};

struct Case {
  Optimizer optimizer;
  size_t width;
  RowType weights, state;
};

void check(const Kernels& kernels, const Case& c) {
  CAPTURE(kernels.name);
  CAPTURE(static_cast<int>(c.optimizer.kind));
  CAPTURE(c.width);
  CAPTURE(static_cast<int>(c.weights));
  const LineLayout layout = layout_of(c.optimizer, c.width, c.weights, c.state);
  Lines trained(kernels, c.optimizer, layout), expected(kernels, c.optimizer, layout);
  const std::vector<float> corrections{1.0f, 0.3f, 0.5f, 0.7f, 0.9f};
  for (uint32_t clock = 1; clock <= 3; ++clock) {
    UpdateStep step = step_of(c.optimizer, layout, corrections);
    step.clock = clock;
    Gradients good(c.width, clock), bad(c.width, clock);
    std::vector<std::byte*> others = expected.lines;
    size_t left_out = 0;
    const auto spoil = [&](size_t u, size_t column, float value) {
      bad.at(u, u % 2, column) = value;
      others[u] = nullptr;
      ++left_out;
    };
    for (size_t u = clock; u < kRows; u += 10) spoil(u, c.width - 1, kNan);
    for (size_t u = clock + 3; u < kRows; u += 10) spoil(u, 0, kInfinity);
    for (size_t u = clock + 6; u < kRows; u += 10) spoil(u, c.width / 2, -kInfinity);
    if (squares(c.optimizer.kind) && c.optimizer.clip_row_norm == 0.0f) {
      spoil(0, c.width / 2, 1e30f);
    }
    CHECK(kernels.update(step, bad.view(), nullptr, 0, kRows, trained.lines.data()) == left_out);
    CHECK(kernels.update(step, good.view(), nullptr, 0, kRows, others.data()) == 0);
    size_t wrong = 0;
    for (size_t u = 0; u < kRows; ++u) wrong += trained.row(u) != expected.row(u);
    CHECK(wrong == 0);
  }
  CHECK(trained.nonfinite() == 0);
}

std::vector<Optimizer> variants(OptimizerKind kind) {
  Optimizer base;
  base.kind = kind;
  std::vector<Optimizer> all(4, base);
  all[1].initial_accumulator = 0.0f;
  all[1].row_steps = false;
  all[1].nesterov = true;
  all[2].l2 = 0.03f;
  all[2].weight_decay = 0.2f;
  all[2].beta = 0.5f;
  all[3].clip_row_norm = 0.7f;
  return all;
}

}  // namespace

TEST_CASE("update: a row that would not be finite stays as it was, the others are updated") {
  for (const Kernels* kernels : available()) {
    for (const OptimizerKind kind : kKinds) {
      for (const Optimizer& optimizer : variants(kind)) {
        for (const size_t width : {1, 8, 16, 17, 64, 100, 1030}) {
          check(*kernels, {optimizer, width, RowType::kFloat32, RowType::kFloat32});
        }
        check(*kernels, {optimizer, 17, RowType::kBfloat16, RowType::kFloat16});
        check(*kernels, {optimizer, 8, RowType::kFloat16, RowType::kFloat32});
      }
    }
  }
}

TEST_CASE("update: a row that is NaN already stays, and counts as left out") {
  for (const Kernels* kernels : available()) {
    for (const OptimizerKind kind : kKinds) {
      Optimizer optimizer;
      optimizer.kind = kind;
      const LineLayout layout = layout_of(optimizer, 9, RowType::kFloat32, RowType::kFloat32);
      Lines lines(*kernels, optimizer, layout);
      uint32_t payload = 0x7f812345u;  // signalling, with a payload
      std::memcpy(lines.lines[4] + sizeof(RowHeader) + 4 * 8, &payload, sizeof(payload));
      const std::vector<std::byte> before = lines.row(4);
      const std::vector<float> corrections{1.0f, 0.3f};
      UpdateStep step = step_of(optimizer, layout, corrections);
      step.clock = 1;
      const Gradients gradients(9, 1);
      CHECK(kernels->update(step, gradients.view(), nullptr, 0, kRows, lines.lines.data()) == 1);
      CHECK(lines.row(4) == before);
      CHECK(lines.nonfinite() == 1);
    }
  }
}

TEST_CASE("lines: NaN and infinity are found in weights, vectors and scalars of each type") {
  for (const RowType type : {RowType::kFloat32, RowType::kBfloat16, RowType::kFloat16}) {
    const LineLayout layout{3, type, type, 2, 1};
    const size_t bytes = layout.bytes();
    const uint32_t infinity = type == RowType::kFloat32    ? 0x7f800000u
                              : type == RowType::kBfloat16 ? 0x7f80u
                                                           : 0x7c00u;
    for (size_t value = 0; value < 9; ++value) {
      for (const uint32_t bits : {infinity, infinity | 1u}) {
        std::vector<std::byte> lines(3 * bytes);
        std::memcpy(lines.data() + bytes + value * bytes_of(type), &bits, bytes_of(type));
        CHECK(count_nonfinite_lines(layout, lines.data(), 3) == 1);
      }
    }
    std::vector<std::byte> lines(3 * bytes);
    CHECK(count_nonfinite_lines(layout, lines.data(), 3) == 0);
    std::memcpy(lines.data() + 2 * bytes + layout.scalars_offset(), &kNan, sizeof(kNan));
    CHECK(count_nonfinite_lines(layout, lines.data(), 3) == 1);
  }
}

}  // namespace hotrow
