#include "tensor.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <limits>

namespace hotrow_server {
namespace {

namespace pb = google::protobuf;
using tensorflow::TensorProto;

// TensorFlow's own bound.
constexpr int kMostDimensions = 254;

// The shape, and how many values it has; false: it is none.
bool read_shape(const tensorflow::TensorShapeProto& proto, std::vector<int64_t>* shape,
                size_t* count) {
  if (proto.unknown_rank() || proto.dim_size() > kMostDimensions) return false;
  uint64_t product = 1;
  shape->reserve(static_cast<size_t>(proto.dim_size()));
  for (const auto& dim : proto.dim()) {
    if (dim.size() < 0) return false;
    shape->push_back(dim.size());
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(dim.size()), &product)) return false;
  }
  if (product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
  *count = product;
  return true;
}

// Entry: of the field. Value: of the tensor, an entry or what it converts to.
template <typename Value, typename Entry>
size_t copy_field(const pb::RepeatedField<Entry>& field, size_t count, Value* to) {
  const size_t given = std::min(static_cast<size_t>(field.size()), count);
  if constexpr (std::is_same_v<Value, Entry>) {
    if (given > 0) std::memcpy(to, field.data(), given * sizeof(Value));
  } else {
    for (size_t i = 0; i < given; ++i) to[i] = static_cast<Value>(field[static_cast<int>(i)]);
  }
  return given;
}

// Two entries a value.
template <typename Part>
size_t copy_field(const pb::RepeatedField<Part>& field, size_t count, std::complex<Part>* to) {
  const size_t given = std::min(static_cast<size_t>(field.size()) / 2, count);
  for (size_t i = 0; i < given; ++i) {
    to[i] = {field[static_cast<int>(2 * i)], field[static_cast<int>(2 * i + 1)]};
  }
  return given;
}

// The strings of a tensor_content: all lengths, then all bytes.
bool split_content(const std::string& content, size_t count, std::vector<std::string>* values) {
  pb::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(content.data()),
                              static_cast<int>(content.size()));
  std::vector<uint64_t> lengths;
  for (size_t i = 0; i < count; ++i) {
    uint64_t length;
    if (!in.ReadVarint64(&length) || length > content.size()) return false;
    lengths.push_back(length);
  }
  for (const uint64_t length : lengths) {
    values->emplace_back();
    if (!in.ReadString(&values->back(), static_cast<int>(length))) return false;
  }
  return static_cast<size_t>(in.CurrentPosition()) == content.size();
}

Tensor allocate(TF_DataType type, const std::vector<int64_t>& shape, size_t bytes) {
  return Tensor(TF_AllocateTensor(type, shape.data(), static_cast<int>(shape.size()), bytes));
}

// What is sent bounds what is taken: a few bytes must not ask for terabytes.
bool is_plausible(size_t bytes, size_t given, size_t count, const std::string& content) {
  constexpr size_t kLarge = size_t{1} << 32;
  return bytes <= kLarge || given >= count || !content.empty();
}

// One string for each of `count` places; the last one repeats.
template <typename Values>
Tensor make_strings(const std::vector<int64_t>& shape, size_t count, const Values& values) {
  size_t bytes;
  if (__builtin_mul_overflow(count, sizeof(TF_TString), &bytes)) return nullptr;
  if (!is_plausible(bytes, static_cast<size_t>(values.size()), count, {})) return nullptr;
  Tensor tensor = allocate(TF_STRING, shape, bytes);
  if (tensor == nullptr) return nullptr;
  auto* const to = static_cast<TF_TString*>(TF_TensorData(tensor.get()));
  const size_t given = std::min(static_cast<size_t>(values.size()), count);
  for (size_t i = 0; i < count; ++i) {
    TF_TString_Init(&to[i]);
    if (given == 0) continue;
    const std::string& value = values[static_cast<int>(std::min(i, given - 1))];
    TF_TString_Copy(&to[i], value.data(), value.size());
  }
  return tensor;
}

Tensor decode_strings(const TensorProto& proto, const std::vector<int64_t>& shape, size_t count) {
  if (proto.tensor_content().empty()) return make_strings(shape, count, proto.string_val());
  std::vector<std::string> values;
  if (!split_content(proto.tensor_content(), count, &values)) return nullptr;
  return make_strings(shape, count, values);
}

template <typename Value, typename Entry>
Tensor numbers(const TensorProto& proto, TF_DataType type, const pb::RepeatedField<Entry>& field,
               const std::vector<int64_t>& shape, size_t count) {
  size_t bytes;
  if (__builtin_mul_overflow(count, sizeof(Value), &bytes)) return nullptr;
  const std::string& content = proto.tensor_content();
  if (!content.empty() && content.size() != bytes) return nullptr;
  if (!is_plausible(bytes, static_cast<size_t>(field.size()), count, content)) return nullptr;
  Tensor tensor = allocate(type, shape, bytes);
  if (tensor == nullptr) return nullptr;
  auto* const to = static_cast<Value*>(TF_TensorData(tensor.get()));
  if (!content.empty()) {
    std::memcpy(static_cast<void*>(to), content.data(), bytes);
    return tensor;
  }
  const size_t given = copy_field(field, count, to);
  std::fill(to + given, to + count, given == 0 ? Value{} : to[given - 1]);
  return tensor;
}

// --- back ----------------------------------------------------------------------------------------

template <typename Value, typename Entry>
void write(const TF_Tensor* tensor, pb::RepeatedField<Entry>* field) {
  const auto* const from = static_cast<const Value*>(TF_TensorData(tensor));
  constexpr size_t parts = sizeof(Value) > sizeof(Entry) ? sizeof(Value) / sizeof(Entry) : 1;
  const size_t count = static_cast<size_t>(TF_TensorElementCount(tensor)) * parts;
  field->Resize(static_cast<int>(count), Entry{});
  Entry* const to = field->mutable_data();
  if constexpr (parts > 1 || std::is_same_v<Value, Entry>) {
    if (count > 0) std::memcpy(to, from, count * sizeof(Entry));
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<Entry>(from[i]);
  }
}

}  // namespace

Tensor decode(const TensorProto& proto) {
  std::vector<int64_t> shape;
  size_t count;
  if (!read_shape(proto.tensor_shape(), &shape, &count)) return nullptr;
  const auto type = static_cast<TF_DataType>(proto.dtype());
  switch (proto.dtype()) {
    case tensorflow::DT_FLOAT:
      return numbers<float>(proto, type, proto.float_val(), shape, count);
    case tensorflow::DT_DOUBLE:
      return numbers<double>(proto, type, proto.double_val(), shape, count);
    case tensorflow::DT_INT8:
      return numbers<int8_t>(proto, type, proto.int_val(), shape, count);
    case tensorflow::DT_INT16:
      return numbers<int16_t>(proto, type, proto.int_val(), shape, count);
    case tensorflow::DT_INT32:
      return numbers<int32_t>(proto, type, proto.int_val(), shape, count);
    case tensorflow::DT_UINT8:
      return numbers<uint8_t>(proto, type, proto.int_val(), shape, count);
    case tensorflow::DT_UINT16:
      return numbers<uint16_t>(proto, type, proto.int_val(), shape, count);
    case tensorflow::DT_INT64:
      return numbers<int64_t>(proto, type, proto.int64_val(), shape, count);
    case tensorflow::DT_UINT32:
      return numbers<uint32_t>(proto, type, proto.uint32_val(), shape, count);
    case tensorflow::DT_UINT64:
      return numbers<uint64_t>(proto, type, proto.uint64_val(), shape, count);
    case tensorflow::DT_BOOL:
      return numbers<bool>(proto, type, proto.bool_val(), shape, count);
    case tensorflow::DT_HALF:
    case tensorflow::DT_BFLOAT16:
      return numbers<uint16_t>(proto, type, proto.half_val(), shape, count);
    case tensorflow::DT_COMPLEX64:
      return numbers<std::complex<float>>(proto, type, proto.scomplex_val(), shape, count);
    case tensorflow::DT_COMPLEX128:
      return numbers<std::complex<double>>(proto, type, proto.dcomplex_val(), shape, count);
    case tensorflow::DT_STRING:
      return decode_strings(proto, shape, count);
    default:
      return nullptr;
  }
}

bool encode(const TF_Tensor* tensor, bool as_content, TensorProto* proto) {
  const TF_DataType type = TF_TensorType(tensor);
  proto->set_dtype(static_cast<tensorflow::DataType>(type));
  auto* const shape = proto->mutable_tensor_shape();
  for (int i = 0; i < TF_NumDims(tensor); ++i) shape->add_dim()->set_size(TF_Dim(tensor, i));
  if (as_content && type != TF_STRING && TF_DataTypeSize(type) > 0) {
    proto->set_tensor_content(TF_TensorData(tensor), TF_TensorByteSize(tensor));
    return true;
  }
  switch (type) {
    case TF_FLOAT:
      write<float>(tensor, proto->mutable_float_val());
      return true;
    case TF_DOUBLE:
      write<double>(tensor, proto->mutable_double_val());
      return true;
    case TF_INT8:
      write<int8_t>(tensor, proto->mutable_int_val());
      return true;
    case TF_INT16:
      write<int16_t>(tensor, proto->mutable_int_val());
      return true;
    case TF_INT32:
      write<int32_t>(tensor, proto->mutable_int_val());
      return true;
    case TF_UINT8:
      write<uint8_t>(tensor, proto->mutable_int_val());
      return true;
    case TF_UINT16:
      write<uint16_t>(tensor, proto->mutable_int_val());
      return true;
    case TF_INT64:
      write<int64_t>(tensor, proto->mutable_int64_val());
      return true;
    case TF_UINT32:
      write<uint32_t>(tensor, proto->mutable_uint32_val());
      return true;
    case TF_UINT64:
      write<uint64_t>(tensor, proto->mutable_uint64_val());
      return true;
    case TF_BOOL:
      write<bool>(tensor, proto->mutable_bool_val());
      return true;
    case TF_HALF:
    case TF_BFLOAT16:
      write<uint16_t>(tensor, proto->mutable_half_val());
      return true;
    case TF_COMPLEX64:
      write<std::complex<float>>(tensor, proto->mutable_scomplex_val());
      return true;
    case TF_COMPLEX128:
      write<std::complex<double>>(tensor, proto->mutable_dcomplex_val());
      return true;
    case TF_STRING: {
      const size_t count = static_cast<size_t>(TF_TensorElementCount(tensor));
      proto->mutable_string_val()->Reserve(static_cast<int>(count));
      for (size_t i = 0; i < count; ++i) proto->add_string_val(string_at(tensor, i));
      return true;
    }
    default:
      return false;
  }
}

Tensor strings(const std::vector<std::string>& values) {
  return make_strings({static_cast<int64_t>(values.size())}, values.size(), values);
}

std::string string_at(const TF_Tensor* tensor, size_t i) {
  const auto* const from = static_cast<const TF_TString*>(TF_TensorData(tensor)) + i;
  return {TF_TString_GetDataPointer(from), TF_TString_GetSize(from)};
}

std::string shape_text(const TF_Tensor* tensor) {
  std::string text = "[";
  for (const int64_t size : shape_of(tensor)) {
    text += (text.size() > 1 ? "," : "") + std::to_string(size);
  }
  return text + "]";
}

}  // namespace hotrow_server
