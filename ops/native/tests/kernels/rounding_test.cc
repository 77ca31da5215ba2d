// Rounding to 16 bits, to nearest and stochastically: kernels/half.h, and the kernels against it.
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

namespace hotrow {
namespace {

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

      // An update writes no other values.
      std::vector<float> finite = values;
      for (float& value : finite) value = std::isfinite(value) ? value : 0.0f;
      const std::vector<float> zeros(width, 0.0f);
      RowHeader header{-42, 0, 0};
      kernels->initialize(layout, optimizer, zeros.data(), line.data());
      std::memcpy(line.data(), &header, sizeof(header));
      std::memcpy(line.data() + 16 + layout.state_offset(), finite.data(), 4 * width);
      UpdateStep step = step_of(optimizer, layout, {});
      step.learning_rate = 0.0f;
      step.clock = 9;
      const uint32_t begins[] = {0, 0};
      std::byte* updated[] = {line.data()};
      kernels->update(step, {nullptr, nullptr, begins}, nullptr, 0, 1, updated);
      const uint64_t stream = rounding_stream(step.seed, header.key, step.clock);
      for (size_t j = 0; j < width; ++j) {
        const uint32_t r = rounding_bits(stream, static_cast<uint32_t>(j));
        const float sum = 0.0f + finite[j];
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
