#include "core/store/row_codec.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/base/status.h"
#include "tests/error_code.h"

namespace hotrow {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The weights after encoding and decoding.
std::vector<float> round_trip(StoredType type, const std::vector<float>& weights) {
  // At an odd address.
  std::vector<std::byte> row(row_bytes(type, weights.size()) + 1);
  std::vector<float> read(weights.size());
  encode_row(type, weights.data(), weights.size(), row.data() + 1);
  decode_row(type, row.data() + 1, weights.size(), read.data());
  return read;
}

float value_of(StoredType type, uint16_t half) {
  float value;
  decode_row(type, reinterpret_cast<const std::byte*>(&half), 1, &value);
  return value;
}

}  // namespace

TEST_CASE("row_codec: names and bytes") {
  CHECK(row_bytes(stored_type_of("float32"), 16) == 64);
  CHECK(row_bytes(stored_type_of("bfloat16"), 16) == 32);
  CHECK(row_bytes(stored_type_of("float16"), 3) == 6);
  CHECK(row_bytes(stored_type_of("int8"), 16) == 20);
  for (const char* name : {"float32", "bfloat16", "float16", "int8"}) {
    CHECK(std::strcmp(name_of(stored_type_of(name)), name) == 0);
  }
  CHECK(error_code([] { stored_type_of("float64"); }) == Code::kInvalidArgument);
}

TEST_CASE("row_codec: every 16-bit value is written back as it was read") {
  for (const StoredType type : {StoredType::kBfloat16, StoredType::kFloat16}) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      const float value = value_of(type, half);
      uint16_t back;
      encode_row(type, &value, 1, reinterpret_cast<std::byte*>(&back));
      if (std::isnan(value)) {
        CHECK(std::isnan(value_of(type, back)));
      } else {
        CHECK(back == half);
      }
    }
  }
}

TEST_CASE("row_codec: halves are the nearest ones, ties to even") {
  std::mt19937 random(7);
  for (const StoredType type : {StoredType::kBfloat16, StoredType::kFloat16}) {
    for (int i = 0; i < 100000; ++i) {
      const auto half = static_cast<uint16_t>(random() & 0x7fffu);
      const float low = value_of(type, half), high = value_of(type, half + 1u);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const double middle = (static_cast<double>(low) + high) / 2;
      const auto tie = static_cast<float>(middle);
      if (static_cast<double>(tie) == middle) {
        const float even = (half & 1u) == 0 ? low : high;
        CHECK(round_trip(type, {tie, -tie}) == std::vector<float>{even, -even});
      }
      const float below = std::nextafter(tie, low), above = std::nextafter(tie, high);
      if (below > low && below < middle) CHECK(round_trip(type, {below})[0] == low);
      if (above < high && above > middle) CHECK(round_trip(type, {above})[0] == high);
    }
  }
}

TEST_CASE("row_codec: infinity and NaN stay what they are, except in int8") {
  for (const StoredType type :
       {StoredType::kFloat32, StoredType::kBfloat16, StoredType::kFloat16}) {
    const std::vector<float> read = round_trip(type, {kInfinity, -kInfinity, kNan});
    CHECK(read[0] == kInfinity);
    CHECK(read[1] == -kInfinity);
    CHECK(std::isnan(read[2]));
  }
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    CHECK(error_code([&] { round_trip(StoredType::kInt8, {1.0f, bad}); }) ==
          Code::kInvalidArgument);
  }
}

TEST_CASE("row_codec: the error of int8 is at most half a scale") {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const float size : {1e-30f, 1e-3f, 1.0f, 1e30f}) {
    for (int i = 0; i < 1000; ++i) {
      std::vector<float> weights(16);
      float largest = 0.0f;
      for (float& w : weights) {
        w = size * normal(random);
        largest = std::max(largest, std::fabs(w));
      }
      const std::vector<float> read = round_trip(StoredType::kInt8, weights);
      const double half = static_cast<double>(largest) / 127 / 2;
      for (size_t j = 0; j < weights.size(); ++j) {
        CHECK(std::fabs(static_cast<double>(read[j]) - weights[j]) <= half * (1 + 1e-5));
      }
    }
  }
}

TEST_CASE("row_codec: int8 rows of zeros, of the largest and of the smallest numbers") {
  const std::vector<float> zeros(4, 0.0f);
  CHECK(round_trip(StoredType::kInt8, zeros) == zeros);
  CHECK(round_trip(StoredType::kInt8, {-0.0f, 127.0f, -127.0f, 0.5f, 1.5f}) ==
        std::vector<float>{0.0f, 127.0f, -127.0f, 0.0f, 2.0f});
  const float most = std::numeric_limits<float>::max();
  const std::vector<float> large = round_trip(StoredType::kInt8, {most, -most});
  CHECK(std::isfinite(large[0]));
  CHECK(large[0] == doctest::Approx(most));
  CHECK(large[1] == -large[0]);
  // The scale is subnormal, or rounds to 0: nothing overflows, and the error is at most a scale's.
  const float least = std::numeric_limits<float>::denorm_min();
  for (const float tiny : {least, 63 * least, 64 * least, 190 * least, 191 * least, 1e-38f}) {
    const std::vector<float> read = round_trip(StoredType::kInt8, {tiny, -tiny, tiny / 2});
    for (const float w : {read[0], -read[1]}) CHECK(std::fabs(w - tiny) <= 127 * least);
    CHECK(std::isfinite(read[2]));
  }
}

TEST_CASE("row_codec: float32 keeps every bit") {
  std::mt19937 random(9);
  for (int i = 0; i < 10000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    float weight;
    std::memcpy(&weight, &bits, 4);
    std::byte row[4];
    encode_row(StoredType::kFloat32, &weight, 1, row);
    CHECK(std::memcmp(row, &bits, 4) == 0);
  }
}

}  // namespace hotrow
