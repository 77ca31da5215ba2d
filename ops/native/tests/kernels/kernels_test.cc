// The kernels against a float64 model, against each other and against the scalar code of
// kernels/half.h.
#include "core/kernels/kernels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/kernel_sets.h"
#include "tests/test_size.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hotrow {
namespace {

const OptimizerKind kKinds[] = {OptimizerKind::kSgd,     OptimizerKind::kMomentum,
                                OptimizerKind::kAdagrad, OptimizerKind::kRowwiseAdagrad,
                                OptimizerKind::kAdam,    OptimizerKind::kFtrl};
const RowType kTypes[] = {RowType::kFloat32, RowType::kBfloat16, RowType::kFloat16};
const size_t kWidths[] = {1, 3, 8, 16, 17, 32, 64, 100, 128, 1030};

// The distance of neighbours near a value.
double quantum(RowType type, double value) {
  if (type == RowType::kFloat32) return 0.0;
  if (type == RowType::kBfloat16) return std::abs(value) * 0x1p-7 + 1e-38;
  return std::max(std::abs(value) * 0x1p-10, 0x1p-24);
}

// The values of a line, in float64.
struct Model {
  std::vector<double> weights, state[2];
  double scalar = 0;

  Model(const LineLayout& layout, const std::byte* line) {
    const std::byte* at = line + sizeof(RowHeader);
    for (size_t j = 0; j < layout.width; ++j) {
      weights.push_back(read(layout.weights, at, j));
      for (size_t k = 0; k < layout.vectors; ++k) {
        state[k].push_back(read(layout.state, at + layout.state_offset(), k * layout.width + j));
      }
    }
    if (layout.scalars > 0) scalar = read(RowType::kFloat32, at + layout.scalars_offset(), 0);
  }

  // kernels/optimizer.h, word by word. gradient: the sum.
  void update(const Optimizer& o, double lr, double scale, double step, std::vector<double> g) {
    double norm = 0, mean = 0;
    for (double& x : g) {
      x *= scale;
      norm += x * x;
    }
    norm = std::sqrt(norm);
    for (size_t j = 0; j < g.size(); ++j) {
      if (o.clip_row_norm > 0 && norm > o.clip_row_norm) g[j] *= o.clip_row_norm / norm;
      g[j] += o.l2 * weights[j];
      weights[j] -= lr * o.weight_decay * weights[j];
      mean += g[j] * g[j] / static_cast<double>(g.size());
    }
    const double t = o.row_steps ? scalar + 1 : step;
    if (o.kind == OptimizerKind::kRowwiseAdagrad) scalar += mean;
    if (o.kind == OptimizerKind::kAdam && o.row_steps) scalar = t;
    for (size_t j = 0; j < g.size(); ++j) {
      double& w = weights[j];
      double none = 0, old = 0;
      double* a = state[0].empty() ? &none : &state[0][j];
      double* b = state[1].empty() ? &none : &state[1][j];
      switch (o.kind) {
        case OptimizerKind::kSgd:
          w -= lr * g[j];
          break;
        case OptimizerKind::kMomentum:
          *a = o.momentum * *a - lr * g[j];
          w += o.nesterov ? o.momentum * *a - lr * g[j] : *a;
          break;
        case OptimizerKind::kAdagrad:
          *a += g[j] * g[j];
          w -= lr * g[j] / std::sqrt(*a + o.epsilon);
          break;
        case OptimizerKind::kRowwiseAdagrad:
          w -= lr * g[j] / std::sqrt(scalar + o.epsilon);
          break;
        case OptimizerKind::kAdam:
          *a += (1 - double{o.beta_1}) * (g[j] - *a);
          *b += (1 - double{o.beta_2}) * (g[j] * g[j] - *b);
          w -= lr * correction(o, t) * *a / (std::sqrt(*b) + o.epsilon);
          break;
        case OptimizerKind::kFtrl:
          old = *a;
          *a += g[j] * g[j];
          *b += g[j] + 2 * o.l2_shrinkage * w - (std::sqrt(*a) - std::sqrt(old)) / lr * w;
          w = (std::clamp(*b, -double{o.l1}, double{o.l1}) - *b) /
              ((std::sqrt(*a) + o.beta) / lr + 2 * o.ftrl_l2);
          break;
      }
    }
  }

  static double correction(const Optimizer& o, double t) {
    return std::sqrt(1 - std::pow(double{o.beta_2}, t)) / (1 - std::pow(double{o.beta_1}, t));
  }
};

// Random rows, and the gradients of a step for them.
struct Rows {
  LineLayout layout;
  size_t rows = 24;
  std::mt19937 random;
  std::vector<std::byte> arena;
  std::vector<std::byte*> lines;
  std::vector<float> values, shares;
  std::vector<const float*> pointers;
  std::vector<uint32_t> begins;

  Rows(const LineLayout& layout, unsigned seed) : layout(layout), random(seed) {
    arena.resize(rows * stride());
    point();
  }
  size_t stride() const { return sizeof(RowHeader) + layout.bytes() + 4; }  // 4: a guard
  void point() {
    lines.clear();
    for (size_t u = 0; u < rows; ++u) lines.push_back(arena.data() + u * stride());
  }
  void initialize(const Kernels& kernels, const Optimizer& optimizer) {
    std::mt19937 again(7);
    std::normal_distribution<float> normal(0.0f, 0.5f);
    std::vector<float> weights(layout.width);
    std::fill(arena.begin(), arena.end(), std::byte{0x5a});
    for (size_t u = 0; u < rows; ++u) {
      for (float& w : weights) w = normal(again);
      const RowHeader header{static_cast<int64_t>(u) * 977 - 5000, 0, 0};
      std::memcpy(lines[u], &header, sizeof(header));
      kernels.initialize(layout, optimizer, weights.data(), lines[u]);
    }
  }
  // 0 to 3 gradient rows a row, one row with 40.
  void draw_gradients() {
    std::normal_distribution<float> normal;
    begins.assign(1, 0);
    for (size_t u = 0; u < rows; ++u) {
      begins.push_back(begins.back() + (u == 5 ? 40 : random() % 4));
    }
    values.resize(begins.back() * layout.width);
    shares.resize(begins.back());
    pointers.clear();
    for (float& x : values) x = normal(random);
    for (float& x : shares) x = normal(random);
    for (size_t i = 0; i < begins.back(); ++i) pointers.push_back(values.data() + i * layout.width);
    std::shuffle(pointers.begin(), pointers.end(), random);
  }
  RowGradients gradients(bool with_shares) const {
    return {pointers.data(), with_shares ? shares.data() : nullptr, begins.data()};
  }
  std::vector<double> summed(size_t u, bool with_shares) const {
    std::vector<double> total(layout.width);
    for (size_t i = begins[u]; i < begins[u + 1]; ++i) {
      for (size_t j = 0; j < layout.width; ++j) {
        total[j] += double{pointers[i][j]} * (with_shares ? shares[i] : 1.0);
      }
    }
    return total;
  }
};

std::vector<Optimizer> variants(OptimizerKind kind) {
  Optimizer base;
  base.kind = kind;
  std::vector<Optimizer> all(1, base);
  all.push_back(base);
  all.back().clip_row_norm = 0.7f;
  all.push_back(base);
  all.back().l2 = 0.03f;
  all.push_back(base);
  all.back().weight_decay = 0.2f;
  all.push_back(base);
  all.back().clip_row_norm = 1.5f;
  all.back().l2 = 0.01f;
  all.back().weight_decay = 0.1f;
  all.back().nesterov = true;
  all.back().row_steps = false;
  all.back().l1 = 0.2f;
  all.back().ftrl_l2 = 0.1f;
  all.back().l2_shrinkage = 0.02f;
  all.back().beta = 0.5f;
  return all;
}

template <class Body>
void for_each_combination(const Body& body) {
  size_t n = 0;
  for (OptimizerKind kind : kKinds) {
    for (const Optimizer& optimizer : variants(kind)) {
      for (RowType weights : kTypes) {
        for (RowType state : kTypes) {
          if (optimizer.state_vectors() == 0 && state != RowType::kFloat32) continue;
          for (size_t width : kWidths) {
            if (kLess && n++ % 3 != 0) continue;
            body(optimizer, layout_of(optimizer, width, weights, state));
          }
        }
      }
    }
  }
}

std::string describe(const Optimizer& o, const LineLayout& layout) {
  return "kind " + std::to_string(static_cast<int>(o.kind)) + " width " +
         std::to_string(layout.width) + " weights " +
         std::to_string(static_cast<int>(layout.weights)) + " state " +
         std::to_string(static_cast<int>(layout.state)) + " clip " +
         std::to_string(o.clip_row_norm) + " l2 " + std::to_string(o.l2);
}

std::vector<float> corrections_of(const Optimizer& o) {
  std::vector<float> all(1, 1.0f);
  for (int t = 1; t < 100; ++t) all.push_back(static_cast<float>(Model::correction(o, t)));
  return all;
}

TEST_CASE("each update is that of the float64 model, for every optimizer, option and type") {
  const Kernels& kernels = hotrow::kernels();
  for_each_combination([&](const Optimizer& optimizer, const LineLayout& layout) {
    INFO(describe(optimizer, layout));
    const std::vector<float> corrections = corrections_of(optimizer);
    Rows rows(layout, 11);
    rows.initialize(kernels, optimizer);
    UpdateStep step = step_of(optimizer, layout, corrections);
    double worst = 0;
    for (step.clock = 1; step.clock <= 5; ++step.clock) {
      rows.draw_gradients();
      const bool shares = step.clock % 2 == 0;
      std::vector<Model> expected;
      for (size_t u = 0; u < rows.rows; ++u) {
        expected.emplace_back(layout, rows.lines[u]);
        expected.back().update(optimizer, step.learning_rate, step.scale, step.clock,
                               rows.summed(u, shares));
      }
      kernels.update(step, rows.gradients(shares), nullptr, 0, rows.rows, rows.lines.data());
      for (size_t u = 0; u < rows.rows; ++u) {
        const Model& want = expected[u];
        const Model got(layout, rows.lines[u]);
        const auto check = [&](RowType type, double a, double b) {
          const double error = std::abs(a - b) - quantum(type, std::max(std::abs(a), std::abs(b)));
          worst = std::max(worst, error / (1 + std::abs(b)));
        };
        for (size_t j = 0; j < layout.width; ++j) {
          check(layout.weights, got.weights[j], want.weights[j]);
          for (size_t k = 0; k < layout.vectors; ++k) {
            check(layout.state, got.state[k][j], want.state[k][j]);
          }
        }
        check(RowType::kFloat32, got.scalar, want.scalar);
      }
    }
    CHECK(worst < 1e-4);
  });
}

TEST_CASE("float32 rows follow the float64 model over 200 steps") {
  const Kernels& kernels = hotrow::kernels();
  for (OptimizerKind kind : kKinds) {
    for (const Optimizer& optimizer : variants(kind)) {
      const LineLayout layout = layout_of(optimizer, 19, RowType::kFloat32, RowType::kFloat32);
      INFO(describe(optimizer, layout));
      const std::vector<float> corrections = corrections_of(optimizer);
      Rows rows(layout, 12);
      rows.initialize(kernels, optimizer);
      std::vector<Model> models;
      for (std::byte* line : rows.lines) models.emplace_back(layout, line);
      UpdateStep step = step_of(optimizer, layout, corrections);
      step.corrections_count = 50;
      for (step.clock = 1; step.clock <= 200; ++step.clock) {
        rows.draw_gradients();
        // After the table of corrections ends, both have none.
        const float* saved = step.corrections;
        for (size_t u = 0; u < rows.rows; ++u) {
          Model& model = models[u];
          const double t = optimizer.row_steps ? model.scalar + 1 : step.clock;
          const double rate = optimizer.kind == OptimizerKind::kAdam && t >= 50
                                  ? step.learning_rate / Model::correction(optimizer, t)
                                  : step.learning_rate;
          const double decay = optimizer.weight_decay * step.learning_rate / rate;
          Optimizer adjusted = optimizer;
          adjusted.weight_decay = static_cast<float>(decay);
          model.update(adjusted, rate, step.scale, step.clock, rows.summed(u, false));
        }
        step.corrections = saved;
        kernels.update(step, rows.gradients(false), nullptr, 0, rows.rows, rows.lines.data());
      }
      double worst = 0;
      for (size_t u = 0; u < rows.rows; ++u) {
        const Model got(layout, rows.lines[u]);
        for (size_t j = 0; j < layout.width; ++j) {
          worst = std::max(worst, std::abs(got.weights[j] - models[u].weights[j]));
        }
      }
      CHECK(worst < 1e-4);
    }
  }
}

TEST_CASE("every instruction set gives the same bits") {
  const auto sets = available();
  for_each_combination([&](const Optimizer& optimizer, const LineLayout& layout) {
    INFO(describe(optimizer, layout));
    const std::vector<float> corrections = corrections_of(optimizer);
    std::vector<std::byte> first;
    std::vector<float> first_out;
    for (const Kernels* kernels : sets) {
      INFO(kernels->name);
      Rows rows(layout, 13);
      rows.initialize(*kernels, optimizer);
      UpdateStep step = step_of(optimizer, layout, corrections);
      for (step.clock = 1; step.clock <= 4; ++step.clock) {
        rows.draw_gradients();
        kernels->update(step, rows.gradients(step.clock % 2), nullptr, 0, 7, rows.lines.data());
        kernels->update(step, rows.gradients(step.clock % 2), nullptr, 7, rows.rows,
                        rows.lines.data());
      }
      std::vector<float> out(rows.rows * layout.width * 2 + 3, 3.0f);
      kernels->gather(layout, rows.lines.data(), rows.rows, out.data());
      kernels->sum(rows.gradients(true), layout.width, 1, rows.rows,
                   out.data() + rows.rows * layout.width);
      for (size_t u = 0; u < rows.rows; ++u) {
        kernels->add(layout, rows.lines[u], 0.3f, out.data() + u * layout.width);
        kernels->add(layout, rows.lines[u], 1.0f, out.data() + u * layout.width);
        kernels->divide(layout.width, 3.0f, out.data() + u * layout.width);
      }
      const double squares = kernels->squares(out.data(), out.size());
      out.resize(out.size() + 2);
      std::memcpy(&out[out.size() - 2], &squares, sizeof(squares));
      if (first.empty()) {
        first = rows.arena;
        first_out = out;
      }
      CHECK(rows.arena == first);
      CHECK(std::memcmp(out.data(), first_out.data(), out.size() * sizeof(float)) == 0);
    }
  });
}

TEST_CASE("shares of one give the same bits as none") {
  for (const Kernels* kernels : available()) {
    for (OptimizerKind kind : kKinds) {
      Optimizer optimizer;
      optimizer.kind = kind;
      const std::vector<float> corrections = corrections_of(optimizer);
      for (size_t width : kWidths) {
        const LineLayout layout = layout_of(optimizer, width, RowType::kFloat32, RowType::kFloat32);
        INFO(describe(optimizer, layout));
        std::vector<std::byte> first;
        for (bool shares : {false, true}) {
          Rows rows(layout, 17);
          rows.initialize(*kernels, optimizer);
          UpdateStep step = step_of(optimizer, layout, corrections);
          for (step.clock = 1; step.clock <= 3; ++step.clock) {
            rows.draw_gradients();
            std::fill(rows.shares.begin(), rows.shares.end(), 1.0f);
            kernels->update(step, rows.gradients(shares), nullptr, 0, rows.rows, rows.lines.data());
          }
          if (!shares) first = rows.arena;
          CHECK(rows.arena == first);
        }
      }
    }
  }
}

#if defined(__x86_64__)
TEST_CASE("a thread that flushes denormals, as TensorFlow's do, updates rows to the same bits") {
  for (const Kernels* kernels : available()) {
    INFO(kernels->name);
    Optimizer optimizer;
    optimizer.kind = OptimizerKind::kAdam;
    const std::vector<float> corrections = corrections_of(optimizer);
    const LineLayout layout = layout_of(optimizer, 32, RowType::kFloat32, RowType::kFloat32);
    std::vector<std::byte> first;
    for (bool flush : {false, true}) {
      Rows rows(layout, 18);
      rows.initialize(*kernels, optimizer);
      UpdateStep step = step_of(optimizer, layout, corrections);
      step.scale = 1e-21f;  // squares are denormal
      const unsigned mode = _mm_getcsr();
      for (step.clock = 1; step.clock <= 3; ++step.clock) {
        rows.draw_gradients();
        if (flush) _mm_setcsr(mode | 0x8040);
        kernels->update(step, rows.gradients(false), nullptr, 0, rows.rows, rows.lines.data());
        if (flush) CHECK((_mm_getcsr() & 0x8040) == 0x8040);
        _mm_setcsr(mode);
      }
      if (!flush) first = rows.arena;
      CHECK(rows.arena == first);
    }
    Model model(layout, first.data() + 5 * (sizeof(RowHeader) + layout.bytes() + 4));
    CHECK(*std::max_element(model.state[1].begin(), model.state[1].end()) > 0);
    CHECK(*std::max_element(model.state[1].begin(), model.state[1].end()) < 0x1p-126);
  }
}
#endif

TEST_CASE("reading, summing and pooling are those of the float64 model") {
  for (const Kernels* kernels : available()) {
    for (RowType type : kTypes) {
      for (size_t width : kWidths) {
        Optimizer optimizer;
        const LineLayout layout = layout_of(optimizer, width, type, RowType::kFloat32);
        Rows rows(layout, 14);
        rows.initialize(*kernels, optimizer);
        rows.draw_gradients();
        std::vector<float> out(rows.rows * width + 1, 7.0f), sums(rows.rows * width + 1, 7.0f);
        kernels->gather(layout, rows.lines.data(), rows.rows, out.data());
        kernels->sum(rows.gradients(true), width, 0, rows.rows, sums.data());
        CHECK(out.back() == 7.0f);
        CHECK(sums.back() == 7.0f);
        double worst = 0, squares = 0;
        for (size_t u = 0; u < rows.rows; ++u) {
          const Model model(layout, rows.lines[u]);
          const std::vector<double> summed = rows.summed(u, true);
          for (size_t j = 0; j < width; ++j) {
            CHECK(out[u * width + j] == model.weights[j]);
            worst = std::max(worst, std::abs(sums[u * width + j] - summed[j]));
            squares += double{out[u * width + j]} * out[u * width + j];
          }
        }
        CHECK(worst < 1e-4);
        CHECK(kernels->squares(out.data(), rows.rows * width) == doctest::Approx(squares));
        std::vector<float> pooled(out.begin(), out.begin() + static_cast<ptrdiff_t>(width));
        kernels->add(layout, rows.lines[0], 2.5f, pooled.data());
        kernels->divide(width, 2.0f, pooled.data());
        for (size_t j = 0; j < width; ++j) {
          CHECK(pooled[j] == doctest::Approx(out[j] * 3.5 / 2));
        }
      }
    }
  }
}

TEST_CASE("a row's count stops at 2^32 - 1, its clock is the step's, null lines are skipped") {
  for (const Kernels* kernels : available()) {
    Optimizer optimizer;
    const LineLayout layout = layout_of(optimizer, 5, RowType::kFloat32, RowType::kFloat32);
    Rows rows(layout, 15);
    rows.initialize(*kernels, optimizer);
    rows.draw_gradients();
    const std::vector<std::byte> before = rows.arena;
    const auto header = [&](size_t u) {
      RowHeader found;
      std::memcpy(&found, rows.arena.data() + u * rows.stride(), sizeof(found));
      return found;
    };
    const RowHeader full{3, 1, UINT32_MAX - 1}, some{4, 1, 100};
    std::memcpy(rows.lines[5], &full, sizeof(full));
    std::memcpy(rows.lines[6], &some, sizeof(some));
    rows.lines[8] = nullptr;
    UpdateStep step = step_of(optimizer, layout, {});
    step.clock = 77;
    kernels->update(step, rows.gradients(false), nullptr, 0, rows.rows, rows.lines.data());
    CHECK(header(5).count == UINT32_MAX);
    CHECK(header(5).key == 3);
    CHECK(header(5).clock == 77);
    CHECK(header(6).count == 100 + rows.begins[7] - rows.begins[6]);
    CHECK(std::memcmp(rows.arena.data() + 8 * rows.stride(), before.data() + 8 * rows.stride(),
                      rows.stride()) == 0);
    std::vector<uint32_t> counts(rows.rows, 1000);
    kernels->update(step, rows.gradients(false), counts.data(), 6, 7, rows.lines.data());
    CHECK(header(6).count == 1100 + rows.begins[7] - rows.begins[6]);
    CHECK(header(7).count == rows.begins[8] - rows.begins[7]);
  }
}

TEST_CASE("an FTRL weight without any gradient, from n = 0, stays") {
  for (const Kernels* kernels : available()) {
    Optimizer optimizer;
    optimizer.kind = OptimizerKind::kFtrl;
    optimizer.initial_accumulator = 0.0f;
    const LineLayout layout = layout_of(optimizer, 5, RowType::kFloat32, RowType::kFloat32);
    Rows rows(layout, 16);
    rows.initialize(*kernels, optimizer);
    rows.draw_gradients();
    std::fill(rows.values.begin(), rows.values.end(), 0.0f);
    const Model before(layout, rows.lines[0]);
    const UpdateStep step = step_of(optimizer, layout, {});
    kernels->update(step, rows.gradients(false), nullptr, 0, rows.rows, rows.lines.data());
    CHECK(Model(layout, rows.lines[0]).weights == before.weights);
  }
}

TEST_CASE("a new line has its optimizer's first state and no stray bytes") {
  for (const Kernels* kernels : available()) {
    Optimizer optimizer;
    optimizer.kind = OptimizerKind::kAdam;
    const LineLayout layout = layout_of(optimizer, 3, RowType::kBfloat16, RowType::kFloat32);
    REQUIRE(layout.bytes() == 36);
    const LineLayout odd = layout_of(optimizer, 3, RowType::kBfloat16, RowType::kFloat16);
    REQUIRE(odd.scalars_offset() == 20);
    std::vector<std::byte> line(16 + odd.bytes() + 1, std::byte{0xee});
    const float weights[3] = {1.0f, -2.0f, 3.0f};
    kernels->initialize(odd, optimizer, weights, line.data());
    CHECK(line[15] == std::byte{0xee});
    CHECK(line.back() == std::byte{0xee});
    for (size_t i = 16 + 6; i + 1 < line.size(); ++i) CHECK(line[i] == std::byte{0});
    optimizer.kind = OptimizerKind::kFtrl;
    const LineLayout ftrl = layout_of(optimizer, 3, RowType::kFloat32, RowType::kFloat32);
    std::vector<std::byte> other(16 + ftrl.bytes());
    kernels->initialize(ftrl, optimizer, weights, other.data());
    const Model model(ftrl, other.data());
    CHECK(model.weights == std::vector<double>{1, -2, 3});
    CHECK(model.state[0] == std::vector<double>(3, double{0.1f}));
    CHECK(model.state[1] == std::vector<double>(3, 0.0));
  }
}

}  // namespace
}  // namespace hotrow
