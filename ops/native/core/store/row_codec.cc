#include "core/store/row_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/status.h"
#include "core/kernels/half.h"

namespace hotrow {
namespace {

constexpr const char* kNames[] = {"float32", "bfloat16", "float16", "int8"};
constexpr float kMostInt8 = 127.0f;

template <typename To>
void encode_halves(const float* weights, size_t width, std::byte* row, To to) {
  for (size_t j = 0; j < width; ++j) {
    const uint16_t half = to(weights[j]);
    std::memcpy(row + 2 * j, &half, sizeof(half));
  }
}

template <typename From>
void decode_halves(const std::byte* row, size_t width, float* weights, From from) {
  for (size_t j = 0; j < width; ++j) {
    uint16_t half;
    std::memcpy(&half, row + 2 * j, sizeof(half));
    weights[j] = from(half);
  }
}

void encode_int8(const float* weights, size_t width, std::byte* row) {
  float largest = 0.0f;
  for (size_t j = 0; j < width; ++j) {
    if (!std::isfinite(weights[j])) {
      fail(Code::kInvalidArgument, "a weight is %g; int8 rows hold finite weights only",
           static_cast<double>(weights[j]));
    }
    largest = std::max(largest, std::fabs(weights[j]));
  }
  float scale = largest / kMostInt8;
  // A scale that was rounded up could decode to infinity.
  if (!std::isfinite(scale * kMostInt8)) scale = std::nextafter(scale, 0.0f);
  std::memcpy(row, &scale, sizeof(scale));
  for (size_t j = 0; j < width; ++j) {
    // A scale below the smallest normal number may round so that a quotient exceeds 127.
    const float q = scale == 0.0f ? 0.0f : std::nearbyint(weights[j] / scale);
    const auto byte = static_cast<int8_t>(std::clamp(q, -kMostInt8, kMostInt8));
    std::memcpy(row + sizeof(scale) + j, &byte, 1);
  }
}

void decode_int8(const std::byte* row, size_t width, float* weights) {
  float scale;
  std::memcpy(&scale, row, sizeof(scale));
  for (size_t j = 0; j < width; ++j) {
    int8_t byte;
    std::memcpy(&byte, row + sizeof(scale) + j, 1);
    weights[j] = scale * static_cast<float>(byte);
  }
}

}  // namespace

StoredType stored_type_of(const char* name) {
  for (int t = 0; t < 4; ++t) {
    if (std::strcmp(name, kNames[t]) == 0) return static_cast<StoredType>(t);
  }
  fail(Code::kInvalidArgument, "row type %s; one of float32, bfloat16, float16, int8", name);
}

const char* name_of(StoredType type) { return kNames[static_cast<int>(type)]; }

size_t row_bytes(StoredType type, size_t width) {
  switch (type) {
    case StoredType::kFloat32:
      return width * sizeof(float);
    case StoredType::kBfloat16:
    case StoredType::kFloat16:
      return width * sizeof(uint16_t);
    case StoredType::kInt8:
      return sizeof(float) + width;
  }
  return 0;
}

void encode_row(StoredType type, const float* weights, size_t width, std::byte* row) {
  switch (type) {
    case StoredType::kFloat32:
      std::memcpy(row, weights, width * sizeof(float));
      break;
    case StoredType::kBfloat16:
      encode_halves(weights, width, row, bfloat16_nearest);
      break;
    case StoredType::kFloat16:
      encode_halves(weights, width, row, float16_nearest);
      break;
    case StoredType::kInt8:
      encode_int8(weights, width, row);
      break;
  }
}

void decode_row(StoredType type, const std::byte* row, size_t width, float* weights) {
  switch (type) {
    case StoredType::kFloat32:
      std::memcpy(weights, row, width * sizeof(float));
      break;
    case StoredType::kBfloat16:
      decode_halves(row, width, weights, float_of_bfloat16);
      break;
    case StoredType::kFloat16:
      decode_halves(row, width, weights, float_of_float16);
      break;
    case StoredType::kInt8:
      decode_int8(row, width, weights);
      break;
  }
}

}  // namespace hotrow
