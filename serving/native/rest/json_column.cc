#include "rest/json_column.h"

#include <absl/strings/escaping.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <new>

#include "base/refused.h"
#include "tensorflow/core/framework/types.pb.h"

namespace hotrow_server {
namespace {

// TensorFlow's name of a type in messages: "float", "int64".
std::string name_of(TF_DataType type) {
  std::string name = tensorflow::DataType_Name(static_cast<tensorflow::DataType>(type));
  if (name.rfind("DT_", 0) == 0) name.erase(0, 3);
  for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
  return name;
}

std::string text_of(const std::vector<size_t>& shape) {
  std::string text = "[";
  for (const size_t size : shape) {
    if (text.size() > 1) text += ',';
    text += std::to_string(size);
  }
  return text + "]";
}

size_t product(const std::vector<size_t>& shape) {
  size_t count = 1;
  for (const size_t size : shape) count *= size;
  return count;
}

template <typename Json>
std::vector<size_t> shape_of(Json value) {
  std::vector<size_t> shape;
  while (value.kind() == JsonKind::kArray) {
    shape.push_back(value.size());
    if (shape.back() == 0) break;
    value = value.first();
  }
  return shape;
}

// 0: the type has no JSON form.
size_t value_bytes(TF_DataType type) {
  switch (type) {
    case TF_FLOAT:
    case TF_INT32:
    case TF_UINT32:
      return 4;
    case TF_DOUBLE:
    case TF_INT64:
    case TF_UINT64:
      return 8;
    case TF_INT16:
      return 2;
    case TF_INT8:
    case TF_UINT8:
    case TF_BOOL:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

template <typename Json>
bool is_base64(const Json& value) {
  if (value.kind() != JsonKind::kObject || value.size() != 1) return false;
  const auto text = value.member("b64");
  return text && text->kind() == JsonKind::kString;
}

template <typename Json>
std::string read_base64(const Json& value) {
  if (!is_base64(value)) {
    refuse("JSON Value: " + shown(value) + " not formatted correctly for base64 data");
  }
  const std::string_view text = value.member("b64")->text();
  std::string bytes;
  if (!absl::Base64Unescape(absl::string_view(text.data(), text.size()), &bytes)) {
    refuse("Unable to base64 decode");
  }
  return bytes;
}

template <typename Json>
void JsonColumn<Json>::add(const Json& value) {
  const Shape shape = shape_of(value);
  const size_t before = count();
  fill(value, 0, shape);
  if (!shape_) {
    shape_ = shape;
    return;
  }
  const size_t expected = product(*shape_), got = count() - before;
  if (expected != got) {
    refuse("Expecting tensor size: " + std::to_string(expected) +
           " but got: " + std::to_string(got));
  }
  if (*shape_ != shape) {
    refuse("Expecting shape " + text_of(*shape_) + " but got: " + text_of(shape));
  }
}

template <typename Json>
Tensor JsonColumn<Json>::tensor(std::optional<int64_t> rows) {
  std::vector<int64_t> shape;
  if (rows) shape.push_back(*rows);
  if (shape_) shape.insert(shape.end(), shape_->begin(), shape_->end());
  if (shape.size() > size_t{kMostDimensions}) return nullptr;  // TensorFlow would end the process
  Tensor tensor = make_tensor(type_, shape);
  if (tensor == nullptr) throw std::bad_alloc();
  if (type_ != TF_STRING) {
    const std::string_view values = values_.view();
    std::copy(values.begin(), values.end(), static_cast<char*>(TF_TensorData(tensor.get())));
    return tensor;
  }
  auto* const to = static_cast<TF_TString*>(TF_TensorData(tensor.get()));
  for (size_t i = 0; i < strings_.size(); ++i) {
    TF_TString_Copy(&to[i], strings_[i].data(), strings_[i].size());
  }
  return tensor;
}

template <typename Json>
void JsonColumn<Json>::fill(const Json& value, size_t level, const Shape& shape) {
  if (value.kind() != JsonKind::kArray) {
    if (level != shape.size()) {
      refuse("JSON Value: " + shown(value) +
             " found at incorrect level: " + std::to_string(level + 1) +
             " in the JSON DOM. Expected at level: " + std::to_string(shape.size()));
    }
    append(value);
    return;
  }
  if (level >= shape.size()) {
    refuse("Encountered list at unexpected level: " + std::to_string(level) + " expected < " +
           std::to_string(shape.size()));
  }
  const size_t size = value.size();
  if (size != shape[level]) {
    refuse("Encountered list at unexpected size: " + std::to_string(size) + " at level: " +
           std::to_string(level) + " expected size: " + std::to_string(shape[level]));
  }
  if (type_ == TF_FLOAT && level + 1 == shape.size()) {
    // Most values are decimals in lists.
    auto* const to = reinterpret_cast<float*>(values_.reserve(size * sizeof(float)));
    const size_t read = value.read_numbers(to);
    values_.commit(read * sizeof(float));
    if (read == size) return;
    size_t item_number = 0;
    value.each_item([&](const Json& item) {
      if (item_number++ >= read) fill(item, level + 1, shape);
    });
    return;
  }
  value.each_item([&](const Json& item) { fill(item, level + 1, shape); });
}

template <typename Json>
void JsonColumn<Json>::append(const Json& leaf) {
  const JsonKind kind = leaf.kind();
  switch (type_) {
    case TF_FLOAT:
      if (kind != JsonKind::kNumber) refuse_type(leaf);
      return push(static_cast<float>(leaf.number().as_double()));
    case TF_DOUBLE:
      if (kind != JsonKind::kNumber) refuse_type(leaf);
      return push(leaf.number().as_double());
    case TF_BOOL:
      if (kind != JsonKind::kTrue && kind != JsonKind::kFalse) refuse_type(leaf);
      return push(leaf.boolean());
    case TF_STRING:
      if (kind == JsonKind::kObject) {
        strings_.push_back(read_base64(leaf));
      } else if (kind == JsonKind::kString) {
        strings_.emplace_back(leaf.text());
      } else {
        refuse_type(leaf);
      }
      return;
    default:
      if (value_bytes(type_) == 0) {
        throw Refused(grpc::StatusCode::UNIMPLEMENTED,
                      "Conversion of JSON Value: " + shown(leaf) + " to type: " + name_of(type_));
      }
      append_whole(leaf);
  }
}

// Types of 8 and 16 bits are checked as int32 only, as in TensorFlow Serving.
template <typename Json>
void JsonColumn<Json>::append_whole(const Json& leaf) {
  if (leaf.kind() != JsonKind::kNumber) refuse_type(leaf);
  const JsonNumber number = leaf.number();
  const bool is_signed = number.type == JsonNumber::Type::kInt64;
  const auto within = [&](int64_t least, uint64_t most) {
    if (is_signed) {
      const int64_t value = number.signed_value;
      return value >= least && (value < 0 || static_cast<uint64_t>(value) <= most);
    }
    return number.is_whole() && number.unsigned_value <= most;
  };
  const auto bits = is_signed ? static_cast<uint64_t>(number.signed_value) : number.unsigned_value;
  switch (type_) {
    case TF_INT64:
      if (!within(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())) break;
      return push(bits);
    case TF_UINT64:
      if (!within(0, std::numeric_limits<uint64_t>::max())) break;
      return push(bits);
    case TF_UINT32:
      if (!within(0, std::numeric_limits<uint32_t>::max())) break;
      return push(static_cast<uint32_t>(bits));
    default:
      if (!within(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max())) break;
      if (value_bytes(type_) == 4) return push(static_cast<uint32_t>(bits));
      if (value_bytes(type_) == 2) return push(static_cast<uint16_t>(bits));
      return push(static_cast<uint8_t>(bits));
  }
  refuse_type(leaf);
}

template <typename Json>
void JsonColumn<Json>::refuse_type(const Json& value) const {
  refuse("JSON Value: " + shown(value) + " Type: " + hotrow_server::name_of(value.kind()) +
         " is not of expected type: " + name_of(type_));
}

template <typename Json>
size_t JsonColumn<Json>::count() const {
  return type_ == TF_STRING ? strings_.size()
                            : values_.size() / std::max<size_t>(1, value_bytes(type_));
}

template bool is_base64(const FastJson& value);
template bool is_base64(const LiberalJson& value);
template std::string read_base64(const FastJson& value);
template std::string read_base64(const LiberalJson& value);
template class JsonColumn<FastJson>;
template class JsonColumn<LiberalJson>;

}  // namespace hotrow_server
