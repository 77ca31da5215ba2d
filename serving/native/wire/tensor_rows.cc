#include "wire/tensor_rows.h"

#include <algorithm>
#include <cstring>

#include "base/refused.h"

namespace hotrow_server {
namespace {

// The highest rank that TensorFlow pads.
constexpr size_t kMostPaddedRank = 6;

size_t value_bytes(TF_DataType type) {
  return type == TF_STRING ? sizeof(TF_TString) : TF_DataTypeSize(type);
}

// Copies values to a place made by make_tensor.
void copy_values(TF_DataType type, const char* from, size_t count, char* to) {
  if (type != TF_STRING) {
    if (count > 0) std::memcpy(to, from, count * value_bytes(type));
    return;
  }
  const auto* const strings = reinterpret_cast<const TF_TString*>(from);
  auto* const copies = reinterpret_cast<TF_TString*>(to);
  for (size_t i = 0; i < count; ++i) {
    TF_TString_Copy(&copies[i], TF_TString_GetDataPointer(&strings[i]),
                    TF_TString_GetSize(&strings[i]));
  }
}

// The dimensions after the 0th.
std::vector<int64_t> inner_shape(const TF_Tensor* tensor) {
  std::vector<int64_t> shape = shape_of(tensor);
  shape.erase(shape.begin());
  return shape;
}

size_t product(const std::vector<int64_t>& shape) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  return count;
}

// Writes one tensor after the other into rows of one inner shape.
class RowWriter {
 public:
  RowWriter(TF_DataType type, int64_t rows, const std::vector<int64_t>& inner)
      : type_(type), inner_(inner), row_values_(product(inner)) {
    std::vector<int64_t> shape = inner;
    shape.insert(shape.begin(), rows);
    tensor_ = make_tensor(type, shape);
    to_ = static_cast<char*>(TF_TensorData(tensor_.get()));
  }

  void write(const Rows& rows) {
    const std::vector<int64_t> inner = inner_shape(rows.tensor);
    const size_t bytes = value_bytes(type_);
    const size_t values = product(inner);
    const char* from = static_cast<const char*>(TF_TensorData(rows.tensor)) +
                       static_cast<size_t>(rows.first) * values * bytes;
    if (inner == inner_) {
      const size_t count = static_cast<size_t>(rows.count) * values;
      copy_values(type_, from, count, to_);
      to_ += count * bytes;
      return;
    }
    if (rows.count > 0 && values == 0) refuse("Got empty tensor in batch of non-empty tensors.");
    const char* const filling = from;
    for (int64_t row = 0; row < rows.count; ++row) {
      for (size_t i = 0; i < row_values_; ++i) copy_values(type_, filling, 1, to_ + i * bytes);
      copy_block(inner, 0, &from, 0);
      to_ += row_values_ * bytes;
    }
  }

  Tensor take() { return std::move(tensor_); }

 private:
  // Copies the values below one place of the dimension; place: of the row's values.
  void copy_block(const std::vector<int64_t>& inner, size_t dimension, const char** from,
                  size_t place) {
    const size_t bytes = value_bytes(type_);
    if (dimension + 1 >= inner.size()) {
      const size_t count = static_cast<size_t>(inner.empty() ? 1 : inner.back());
      copy_values(type_, *from, count, to_ + place * bytes);
      *from += count * bytes;
      return;
    }
    size_t stride = 1;
    for (size_t d = dimension + 1; d < inner_.size(); ++d) stride *= static_cast<size_t>(inner_[d]);
    for (int64_t i = 0; i < inner[dimension]; ++i) {
      copy_block(inner, dimension + 1, from, place + static_cast<size_t>(i) * stride);
    }
  }

  const TF_DataType type_;
  const std::vector<int64_t> inner_;
  const size_t row_values_;
  Tensor tensor_;
  char* to_;
};

int64_t count_rows(const std::vector<Rows>& parts) {
  int64_t count = 0;
  for (const Rows& rows : parts) count += rows.count;
  return count;
}

// The largest size of each dimension.
std::vector<int64_t> padded_shape(const std::vector<Rows>& parts, const std::string& name) {
  std::vector<int64_t> inner = inner_shape(parts[0].tensor);
  for (const Rows& rows : parts) {
    const std::vector<int64_t> its = inner_shape(rows.tensor);
    if (its.size() != inner.size()) {
      throw Refused(grpc::StatusCode::FAILED_PRECONDITION,
                    "Tensors with name '" + name + "' from different tasks have different ranks.");
    }
    for (size_t d = 0; d < inner.size(); ++d) inner[d] = std::max(inner[d], its[d]);
  }
  if (inner.size() + 1 > kMostPaddedRank) {
    refuse("Only tensors with rank from 1 to 6 can be padded.");
  }
  return inner;
}

}  // namespace

Tensor concatenate(const std::vector<Rows>& parts) {
  RowWriter writer(TF_TensorType(parts[0].tensor), count_rows(parts), inner_shape(parts[0].tensor));
  for (const Rows& rows : parts) writer.write(rows);
  return writer.take();
}

Tensor merge(const std::vector<Rows>& parts, int64_t more, bool pad, const std::string& name) {
  std::vector<int64_t> inner = inner_shape(parts[0].tensor);
  if (pad) {
    inner = padded_shape(parts, name);
  } else {
    for (const Rows& rows : parts) {
      if (inner_shape(rows.tensor) == inner) continue;
      throw Refused(grpc::StatusCode::FAILED_PRECONDITION,
                    "Tensors with name '" + name +
                        "' from different tasks have different shapes and padding is turned off."
                        "Set pad_variable_length_inputs to true, or ensure that all tensors with "
                        "the same namehave equal dimensions starting with the first dim.");
    }
  }
  RowWriter writer(TF_TensorType(parts[0].tensor), count_rows(parts) + more, inner);
  for (const Rows& rows : parts) writer.write(rows);
  const Rows& last = parts.back();
  for (int64_t i = 0; i < more; ++i) writer.write({last.tensor, last.first, 1});
  return writer.take();
}

}  // namespace hotrow_server
