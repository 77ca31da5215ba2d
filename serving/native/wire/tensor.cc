#include "wire/tensor.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace hotrow_server {
namespace {

namespace pb = google::protobuf;
using tensorflow::TensorProto;

// Reads the shape and its number of values; false: the shape is illegal.
bool read_shape(const tensorflow::TensorShapeProto& proto, std::vector<int64_t>* shape,
                size_t* count) {
  if (proto.unknown_rank() || proto.dim_size() > kMostDimensions) return false;
  int64_t product = 1;
  shape->reserve(static_cast<size_t>(proto.dim_size()));
  for (const auto& dim : proto.dim()) {
    if (dim.size() < 0) return false;
    shape->push_back(dim.size());
    // Checked after each dimension, as in TensorFlow: a later 0 makes no difference there, and an
    // overflow would end the process.
    if (__builtin_mul_overflow(product, dim.size(), &product)) return false;
  }
  *count = static_cast<size_t>(product);
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

// Two entries for each value.
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

// A few bytes must not allocate terabytes: a tensor must be small, or not much larger than the sent
// bytes.
bool is_plausible(size_t bytes, size_t sent) {
  constexpr size_t kLarge = size_t{1} << 28, kMostRatio = 16;
  return bytes <= kLarge || bytes / kMostRatio <= sent;
}

// Destroys the strings with their tensor; TensorFlow frees only their array.
void delete_strings(void* data, size_t bytes, void* /*unused*/) {
  auto* const strings = static_cast<TF_TString*>(data);
  for (size_t i = 0; i < bytes / sizeof(TF_TString); ++i) TF_TString_Dealloc(&strings[i]);
  std::free(data);
}

Tensor allocate_strings(const std::vector<int64_t>& shape, size_t count) {
  const size_t bytes = count * sizeof(TF_TString);
  auto* const data = static_cast<TF_TString*>(std::malloc(std::max<size_t>(bytes, 1)));
  if (data == nullptr) throw std::bad_alloc();
  for (size_t i = 0; i < count; ++i) TF_TString_Init(&data[i]);
  return Tensor(TF_NewTensor(TF_STRING, shape.data(), static_cast<int>(shape.size()), data, bytes,
                             delete_strings, nullptr));
}

Tensor allocate_typed(TF_DataType type, const std::vector<int64_t>& shape, size_t count,
                      size_t sent) {
  const size_t size = type == TF_STRING ? sizeof(TF_TString) : TF_DataTypeSize(type);
  size_t bytes;
  if (size == 0 || __builtin_mul_overflow(count, size, &bytes) || !is_plausible(bytes, sent)) {
    return nullptr;
  }
  if (type == TF_STRING) return allocate_strings(shape, count);
  return Tensor(TF_AllocateTensor(type, shape.data(), static_cast<int>(shape.size()), bytes));
}

// One string for each of `count` places; the last one repeats.
template <typename Values>
Tensor make_strings(const std::vector<int64_t>& shape, size_t count, const Values& values) {
  const auto given = std::min(static_cast<size_t>(values.size()), count);
  Tensor tensor = allocate_typed(TF_STRING, shape, count, given * sizeof(TF_TString));
  if (tensor == nullptr || given == 0) return tensor;
  auto* const to = static_cast<TF_TString*>(TF_TensorData(tensor.get()));
  for (size_t i = 0; i < count; ++i) {
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
  const std::string& content = proto.tensor_content();
  const size_t sent =
      content.empty() ? static_cast<size_t>(field.size()) * sizeof(Value) : content.size();
  Tensor tensor = allocate_typed(type, shape, count, sent);
  if (tensor == nullptr) return nullptr;
  auto* const to = static_cast<Value*>(TF_TensorData(tensor.get()));
  if (!content.empty()) {
    if (content.size() != count * sizeof(Value)) return nullptr;
    std::memcpy(static_cast<void*>(to), content.data(), content.size());
    return tensor;
  }
  const size_t given = copy_field(field, count, to);
  std::fill(to + given, to + count, given == 0 ? Value{} : to[given - 1]);
  return tensor;
}

}  // namespace

int value_field(TF_DataType type) {
  switch (type) {
    case TF_FLOAT:
      return TensorProto::kFloatValFieldNumber;
    case TF_DOUBLE:
      return TensorProto::kDoubleValFieldNumber;
    case TF_INT8:
    case TF_INT16:
    case TF_INT32:
    case TF_UINT8:
    case TF_UINT16:
      return TensorProto::kIntValFieldNumber;
    case TF_INT64:
      return TensorProto::kInt64ValFieldNumber;
    case TF_UINT32:
      return TensorProto::kUint32ValFieldNumber;
    case TF_UINT64:
      return TensorProto::kUint64ValFieldNumber;
    case TF_BOOL:
      return TensorProto::kBoolValFieldNumber;
    case TF_HALF:
    case TF_BFLOAT16:
      return TensorProto::kHalfValFieldNumber;
    case TF_COMPLEX64:
      return TensorProto::kScomplexValFieldNumber;
    case TF_COMPLEX128:
      return TensorProto::kDcomplexValFieldNumber;
    case TF_STRING:
      return TensorProto::kStringValFieldNumber;
    default:
      return 0;
  }
}

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

Tensor allocate(const TensorProto& head, size_t sent, size_t* count) {
  std::vector<int64_t> shape;
  if (value_field(static_cast<TF_DataType>(head.dtype())) == 0) return nullptr;
  if (!read_shape(head.tensor_shape(), &shape, count)) return nullptr;
  return allocate_typed(static_cast<TF_DataType>(head.dtype()), shape, *count, sent);
}

Tensor make_tensor(TF_DataType type, const std::vector<int64_t>& shape) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  if (type == TF_STRING) return allocate_strings(shape, count);
  return Tensor(TF_AllocateTensor(type, shape.data(), static_cast<int>(shape.size()),
                                  count * TF_DataTypeSize(type)));
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
    if (text.size() > 1) text += ',';
    text += std::to_string(size);
  }
  return text + "]";
}

}  // namespace hotrow_server
