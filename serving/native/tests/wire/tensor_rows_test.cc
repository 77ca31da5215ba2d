// Rows of requests put together into a batch.
#include "wire/tensor_rows.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/refused.h"

namespace hotrow_server {
namespace {

Tensor floats(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  Tensor tensor = make_tensor(TF_FLOAT, shape);
  std::copy(values.begin(), values.end(), static_cast<float*>(TF_TensorData(tensor.get())));
  return tensor;
}

std::vector<float> values_of(const Tensor& tensor) {
  const auto* const from = static_cast<const float*>(TF_TensorData(tensor.get()));
  return {from, from + TF_TensorElementCount(tensor.get())};
}

grpc::StatusCode refusal_of(const std::vector<Rows>& parts, bool pad) {
  try {
    merge(parts, 0, pad, "x");
  } catch (const Refused& refused) {
    return refused.code();
  }
  return grpc::StatusCode::OK;
}

TEST_CASE("rows are put one below the other, from where each part begins") {
  const Tensor a = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor b = floats({1, 2}, {7, 8});
  const Tensor both = concatenate({{a.get(), 1, 2}, {b.get(), 0, 1}});
  CHECK(shape_of(both.get()) == std::vector<int64_t>{3, 2});
  CHECK(values_of(both) == std::vector<float>{3, 4, 5, 6, 7, 8});
}

TEST_CASE("strings are copied, not shared") {
  Tensor a = strings({"a", std::string(100, 'b')});
  const Tensor both = concatenate({{a.get(), 1, 1}, {a.get(), 0, 2}});
  a = nullptr;
  CHECK(string_at(both.get(), 0) == std::string(100, 'b'));
  CHECK(string_at(both.get(), 1) == "a");
  CHECK(string_at(both.get(), 2) == std::string(100, 'b'));
}

TEST_CASE("a batch is filled up with the first row of its last part") {
  const Tensor a = floats({1}, {1});
  const Tensor b = floats({3}, {2, 3, 4});
  const Tensor batch = merge({{a.get(), 0, 1}, {b.get(), 1, 2}}, 2, false, "x");
  CHECK(values_of(batch) == std::vector<float>{1, 3, 4, 3, 3});
}

TEST_CASE("other dimensions grow to the largest when asked for, filled with the first value") {
  const Tensor a = floats({1, 1, 3}, {1, 2, 3});
  const Tensor b = floats({1, 2, 1}, {8, 9});
  const std::vector<Rows> parts{{a.get(), 0, 1}, {b.get(), 0, 1}};
  const Tensor batch = merge(parts, 0, true, "x");
  CHECK(shape_of(batch.get()) == std::vector<int64_t>{2, 2, 3});
  CHECK(values_of(batch) == std::vector<float>{1, 2, 3, 1, 1, 1, 8, 8, 8, 9, 8, 8});
  CHECK(refusal_of(parts, false) == grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_CASE("what cannot be padded is refused") {
  const Tensor vector = floats({1}, {1});
  const Tensor matrix = floats({1, 2}, {1, 2});
  CHECK(refusal_of({{vector.get(), 0, 1}, {matrix.get(), 0, 1}}, true) ==
        grpc::StatusCode::FAILED_PRECONDITION);
  const Tensor deep = floats({1, 1, 1, 1, 1, 1, 1}, {1});
  CHECK(refusal_of({{deep.get(), 0, 1}}, true) == grpc::StatusCode::INVALID_ARGUMENT);
  const Tensor empty = floats({1, 0}, {});
  CHECK(refusal_of({{matrix.get(), 0, 1}, {empty.get(), 0, 1}}, true) ==
        grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace hotrow_server
