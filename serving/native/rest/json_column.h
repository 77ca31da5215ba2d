// JSON values of one input to its tensor, with the rules and texts of TensorFlow Serving's
// util/json_tensor.cc.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "http/message.h"
#include "rest/json_value.h"
#include "wire/tensor.h"

namespace hotrow_server {

// Whether a value is {"b64": "..."}, which stands for bytes.
template <typename Json>
bool is_base64(const Json& value);
// The bytes of {"b64": "..."}. Fails with INVALID_ARGUMENT when it is another object, or not
// base64.
template <typename Json>
std::string read_base64(const Json& value);

// The values of one input, added row by row; every row has the shape of the first one.
template <typename Json>
class JsonColumn {
 public:
  explicit JsonColumn(TF_DataType type) : type_(type) {}

  // Adds the next row's value or nested list. Fails with INVALID_ARGUMENT for an uneven list,
  // another shape than the first row's, or a value of another type, and with UNIMPLEMENTED for a
  // type without a JSON form.
  void add(const Json& value);
  // Its 0th dimension is rows, unless that is absent. Moves the values out. Null: it has more
  // dimensions than TensorFlow's tensors.
  Tensor tensor(std::optional<int64_t> rows);

 private:
  using Shape = std::vector<size_t>;

  void fill(const Json& value, size_t level, const Shape& shape);
  void append(const Json& leaf);
  void append_whole(const Json& leaf);
  // Takes a number's value as it is in memory.
  template <typename Value>
  void push(Value value) {
    std::memcpy(values_.reserve(sizeof(value)), &value, sizeof(value));
    values_.commit(sizeof(value));
  }
  [[noreturn]] void refuse_type(const Json& value) const;
  size_t count() const;

  const TF_DataType type_;
  Body values_;  // all but strings
  std::vector<std::string> strings_;
  std::optional<Shape> shape_;  // of a row
};

extern template class JsonColumn<FastJson>;
extern template class JsonColumn<LiberalJson>;

}  // namespace hotrow_server
