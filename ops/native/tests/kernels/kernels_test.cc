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

#include "core/kernels/half.h"
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

std::vector<const Kernels*> available() {
  std::vector<const Kernels*> found;
  for (const char* name : {"plain", "avx2", "avx512"}) {
    if (const Kernels* kernels = kernels_named(name)) found.push_back(kernels);
  }
  return found;
}

double read(RowType type, const std::byte* values, size_t i) {
  if (type == RowType::kFloat32) {
    float value;
    std::memcpy(&value, values + 4 * i, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, values + 2 * i, 2);
  return type == RowType::kBfloat16 ? float_of_bfloat16(half) : float_of_float16(half);
}

// The distance of neighbours near a value.
double quantum(RowType type, double value) {
  if (type == RowType::kFloat32) return 0.0;
  if (type == RowType::kBfloat16) return std::abs(value) * 0x1p-7 + 1e-38;
  return std::max(std::abs(value) * 0x1p-10, 0x1p-24);
}

// What a line says, in float64.
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

LineLayout layout_of(const Optimizer& o, size_t width, RowType weights, RowType state) {
  return {width, weights, state, o.state_vectors(), o.state_scalars()};
}

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

UpdateStep step_of(const Optimizer& optimizer, const LineLayout& layout,
                   const std::vector<float>& corrections) {
  UpdateStep step;
  step.optimizer = optimizer;
  step.layout = layout;
  step.learning_rate = 0.05f;
  step.scale = 0.5f;
  step.seed = 2026;
  step.corrections = corrections.data();
  step.corrections_count = corrections.size();
  return step;
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

// ---- 16-bit floats ----

// Edge cases and random bits.
std::vector<float> interesting() {
  std::vector<float> all = {0.0f,         -0.0f,          1.0f,       -1.0f,      65504.0f,
                            65519.9f,     65520.0f,       -65536.0f,  1e10f,      -1e30f,
                            3.4e38f,      -3.4028235e38f, 0x1p-14f,   0x1p-15f,   0x1p-24f,
                            0x1p-25f,     -0x1p-25f,      0x1.8p-25f, 0x1p-26f,   0x1p-40f,
                            0x1p-46f,     0x1p-126f,      0x1p-133f,  0x1p-149f,  0x1.fffp-15f,
                            0x1.ffcp-15f, 0x1.004p0f,     0x1.002p0f, 0x1.006p0f, 0x1.01p0f};
  const float infinity = std::numeric_limits<float>::infinity();
  for (float x : {infinity, -infinity, std::nanf(""), -std::nanf("5")}) all.push_back(x);
  all.push_back(float_of_bits(0x7f800001u));  // signalling NaN
  std::mt19937 random(3);
  while (all.size() < 60000) all.push_back(float_of_bits(random()));
  std::uniform_real_distribution<float> exponent(-30.0f, 17.0f);
  while (all.size() < 120000) {
    all.push_back(std::exp2(exponent(random)) * (random() % 2 ? 1.0f : -1.0f));
  }
  return all;
}

// The neighbours of x, not above and not below, among the values of a type.
struct Neighbours {
  double low, high;
};
Neighbours neighbours(RowType type, double x) {
  const bool bfloat = type == RowType::kBfloat16;
  const double largest = bfloat ? 0x1.fep127 : 65504.0;
  const int smallest = bfloat ? -133 : -24;
  int exponent = 0;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - (bfloat ? 8 : 11), smallest));
  return {std::clamp(std::floor(x / unit) * unit, -largest, largest),
          std::clamp(std::ceil(x / unit) * unit, -largest, largest)};
}

TEST_CASE("nearest rounding takes the nearer neighbour, ties to even, clamps, keeps NaN") {
  for (RowType type : {RowType::kBfloat16, RowType::kFloat16}) {
    for (float x : interesting()) {
      const uint16_t bits = type == RowType::kBfloat16 ? bfloat16_nearest(x) : float16_nearest(x);
      const double got =
          type == RowType::kBfloat16 ? float_of_bfloat16(bits) : float_of_float16(bits);
      INFO(static_cast<int>(type) << " " << x);
      if (std::isnan(x)) {
        CHECK(std::isnan(got));
        continue;
      }
      CHECK(std::signbit(got) == std::signbit(x));
      if (std::isinf(x)) {
        CHECK(got == x);
        continue;
      }
      const auto [low, high] = neighbours(type, x);
      const double below = x - low, above = high - x;
      if (below == above) {
        CHECK((got == low || got == high));
        if (low != high) CHECK(bits % 2 == 0);
      } else {
        CHECK(got == (below < above ? low : high));
      }
    }
  }
}

TEST_CASE("stochastic rounding takes one of the two neighbours and keeps what is exact") {
  std::mt19937 random(4);
  for (RowType type : {RowType::kBfloat16, RowType::kFloat16}) {
    for (float x : interesting()) {
      const uint32_t r = random();
      const uint16_t bits =
          type == RowType::kBfloat16 ? bfloat16_stochastic(x, r) : float16_stochastic(x, r);
      const double got =
          type == RowType::kBfloat16 ? float_of_bfloat16(bits) : float_of_float16(bits);
      INFO(static_cast<int>(type) << " " << x << " " << r);
      if (std::isnan(x)) {
        CHECK(std::isnan(got));
        continue;
      }
      CHECK(std::signbit(got) == std::signbit(x));
      if (std::isinf(x)) {
        CHECK(got == x);
        continue;
      }
      const auto [low, high] = neighbours(type, x);
      CHECK((got == low || got == high));
    }
  }
}

TEST_CASE("every 16-bit value survives both roundings, and float16 reads as IEEE says") {
  for (uint32_t half = 0; half < 0x10000u; ++half) {
    const auto bits = static_cast<uint16_t>(half);
    const float b = float_of_bfloat16(bits), f = float_of_float16(bits);
    if (!std::isnan(b)) {
      CHECK(bfloat16_nearest(b) == bits);
      CHECK(bfloat16_stochastic(b, 0xffffffffu) == bits);
    }
    if (!std::isnan(f)) {
      CHECK(float16_nearest(f) == bits);
      CHECK(float16_stochastic(f, 0xffffffffu) == bits);
    }
    const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    const double magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(1024 + mantissa, exponent - 25);
    if (std::isnan(magnitude)) {
      CHECK(std::isnan(f));
    } else {
      CHECK(f == (bits & 0x8000u ? -magnitude : magnitude));
    }
  }
}

// An update shows how the kernels round: Momentum with rate 0 and momentum 1 adds its state,
// here float32 values of our own, to weights of 0.
TEST_CASE("the kernels round as kernels/half.h does, 16 at a time") {
  const std::vector<float> values = interesting();
  for (const Kernels* kernels : available()) {
    INFO(kernels->name);
    for (RowType type : {RowType::kBfloat16, RowType::kFloat16}) {
      Optimizer optimizer;
      optimizer.kind = OptimizerKind::kMomentum;
      optimizer.momentum = 1.0f;
      const size_t width = values.size();
      const LineLayout layout = layout_of(optimizer, width, type, RowType::kFloat32);
      std::vector<std::byte> line(16 + layout.bytes());
      kernels->initialize(layout, optimizer, values.data(), line.data());
      size_t wrong = 0;
      const auto weight = [&](size_t j) {
        uint16_t bits;
        std::memcpy(&bits, line.data() + 16 + 2 * j, 2);
        return bits;
      };
      for (size_t j = 0; j < width; ++j) {
        wrong += weight(j) != (type == RowType::kBfloat16 ? bfloat16_nearest(values[j])
                                                          : float16_nearest(values[j]));
      }
      CHECK(wrong == 0);
      std::vector<float> read_back(width);
      const std::byte* lines[] = {line.data()};
      kernels->gather(layout, lines, 1, read_back.data());
      for (size_t j = 0; j < width; ++j) {
        const float want =
            type == RowType::kBfloat16 ? float_of_bfloat16(weight(j)) : float_of_float16(weight(j));
        wrong += bits_of_float(want) != bits_of_float(read_back[j]);
      }
      CHECK(wrong == 0);

      const std::vector<float> zeros(width, 0.0f);
      RowHeader header{-42, 0, 0};
      kernels->initialize(layout, optimizer, zeros.data(), line.data());
      std::memcpy(line.data(), &header, sizeof(header));
      std::memcpy(line.data() + 16 + layout.state_offset(), values.data(), 4 * width);
      UpdateStep step = step_of(optimizer, layout, {});
      step.learning_rate = 0.0f;
      step.clock = 9;
      const uint32_t begins[] = {0, 0};
      std::byte* updated[] = {line.data()};
      kernels->update(step, {nullptr, nullptr, begins}, nullptr, 0, 1, updated);
      const uint64_t stream = rounding_stream(step.seed, header.key, step.clock);
      for (size_t j = 0; j < width; ++j) {
        const uint32_t r = rounding_bits(stream, static_cast<uint32_t>(j));
        const float sum = 0.0f + values[j];
        wrong += weight(j) != (type == RowType::kBfloat16 ? bfloat16_stochastic(sum, r)
                                                          : float16_stochastic(sum, r));
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("stochastic rounding is unbiased over keys, clocks and positions") {
  const float values[] = {
      0.1f,       -0.1f,       3.14159f,        -1234.567f, 0x1.0p-16f * 1.37f, -0x1.0p-18f * 1.91f,
      0x1.3p-26f, -0x1.7p-30f, 1.0f + 0x1p-13f, 60001.3f};
  constexpr int kDraws = 400000;
  for (RowType type : {RowType::kBfloat16, RowType::kFloat16}) {
    for (float x : values) {
      INFO(static_cast<int>(type) << " " << x);
      double total = 0;
      for (int i = 0; i < kDraws; ++i) {
        const uint64_t stream =
            rounding_stream(1, i / 128 - 1500, static_cast<uint32_t>(i / 64 % 2));
        const uint32_t r = rounding_bits(stream, static_cast<uint32_t>(i % 64));
        total += type == RowType::kBfloat16 ? float_of_bfloat16(bfloat16_stochastic(x, r))
                                            : float_of_float16(float16_stochastic(x, r));
      }
      const auto [low, high] = neighbours(type, x);
      if (low == high) {
        CHECK(total == kDraws * low);
        continue;
      }
      const double p = (x - low) / (high - low);
      const double sigma = (high - low) * std::sqrt(p * (1 - p) / kDraws);
      CHECK(std::abs(total / kDraws - x) < 5 * sigma);
    }
  }
}

TEST_CASE("bfloat16 weights gather updates that are far below their precision") {
  // 1 moves by 2^-13 a step, 1/64 of the distance of neighbours: nearest rounding would stay.
  Optimizer optimizer;
  const size_t width = 64;
  const LineLayout layout = layout_of(optimizer, width, RowType::kBfloat16, RowType::kFloat32);
  std::vector<std::byte> arena(200 * (16 + layout.bytes()));
  std::vector<std::byte*> lines;
  const std::vector<float> ones(width, 1.0f);
  std::vector<const float*> gradients;
  std::vector<uint32_t> begins(1, 0);
  for (size_t u = 0; u < 200; ++u) {
    lines.push_back(arena.data() + u * (16 + layout.bytes()));
    const RowHeader header{static_cast<int64_t>(u), 0, 0};
    hotrow::kernels().initialize(layout, optimizer, ones.data(), lines.back());
    std::memcpy(lines.back(), &header, sizeof(header));
    gradients.push_back(ones.data());
    begins.push_back(begins.back() + 1);
  }
  UpdateStep step = step_of(optimizer, layout, {});
  step.scale = -1.0f;
  step.learning_rate = 0x1p-13f;
  for (step.clock = 1; step.clock <= 1000; ++step.clock) {
    hotrow::kernels().update(step, {gradients.data(), nullptr, begins.data()}, nullptr, 0, 200,
                             lines.data());
  }
  double total = 0;
  for (std::byte* line : lines) {
    for (size_t j = 0; j < width; ++j) total += read(RowType::kBfloat16, line + 16, j);
  }
  // A weight's deviation: 1000 steps of at most 2^-7 sqrt(p), p = 1/64.
  const double sigma = 0x1p-7 * std::sqrt(1000.0 / 64 / (200.0 * width));
  CHECK(std::abs(total / (200.0 * width) - (1 + 1000 * 0x1p-13)) < 5 * sigma);
}

}  // namespace
}  // namespace hotrow
