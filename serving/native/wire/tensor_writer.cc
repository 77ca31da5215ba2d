#include "wire/tensor_writer.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstring>

#include "wire/fields.h"

namespace hotrow_server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;
using tensorflow::TensorProto;

// Of TensorShapeProto, and of its Dim.
constexpr int kDim = 2, kSize = 1;

size_t varint_size(uint64_t value) { return CodedOutputStream::VarintSize64(value); }

size_t head_size(int field, size_t bytes) {
  return varint_size(delimited(field)) + varint_size(bytes);
}

// A dimension's bytes, without its head. A size of 0 is not written.
size_t dim_size(int64_t size) {
  return size == 0 ? 0 : 1 + varint_size(static_cast<uint64_t>(size));
}

// Whether the field holds the values as they lie in memory; else it holds varints.
bool lie_in_memory(TF_DataType type) {
  return type == TF_FLOAT || type == TF_DOUBLE || type == TF_COMPLEX64 || type == TF_COMPLEX128 ||
         type == TF_BOOL;
}

template <typename Value, typename Take>
void each(const TF_Tensor* tensor, Take&& take) {
  const auto* const values = static_cast<const Value*>(TF_TensorData(tensor));
  const int64_t count = TF_TensorElementCount(tensor);
  // As int32 on the wire: negative values are sign-extended to 64 bits.
  for (int64_t i = 0; i < count; ++i) take(static_cast<uint64_t>(values[i]));
}

// Takes every value as its varint.
template <typename Take>
void each_varint(const TF_Tensor* tensor, Take&& take) {
  switch (TF_TensorType(tensor)) {
    case TF_INT8:
      return each<int8_t>(tensor, take);
    case TF_INT16:
      return each<int16_t>(tensor, take);
    case TF_INT32:
      return each<int32_t>(tensor, take);
    case TF_UINT8:
      return each<uint8_t>(tensor, take);
    case TF_INT64:
      return each<int64_t>(tensor, take);
    case TF_UINT32:
      return each<uint32_t>(tensor, take);
    case TF_UINT64:
      return each<uint64_t>(tensor, take);
    default:  // uint16, and halves by their bits
      return each<uint16_t>(tensor, take);
  }
}

size_t strings_size(const TF_Tensor* tensor) {
  const auto* const values = static_cast<const TF_TString*>(TF_TensorData(tensor));
  size_t bytes = 0;
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i) {
    const size_t size = TF_TString_GetSize(&values[i]);
    bytes += head_size(TensorProto::kStringValFieldNumber, size) + size;
  }
  return bytes;
}

uint8_t* write_strings(const TF_Tensor* tensor, uint8_t* to) {
  const auto* const values = static_cast<const TF_TString*>(TF_TensorData(tensor));
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); ++i) {
    const size_t size = TF_TString_GetSize(&values[i]);
    to = write_head(TensorProto::kStringValFieldNumber, size, to);
    std::memcpy(to, TF_TString_GetDataPointer(&values[i]), size);
    to += size;
  }
  return to;
}

uint8_t* write_memory(const TF_Tensor* tensor, uint8_t* to) {
  const size_t bytes = TF_TensorByteSize(tensor);
  if (bytes > 0) std::memcpy(to, TF_TensorData(tensor), bytes);
  return to + bytes;
}

}  // namespace

TensorWriter::TensorWriter(const TF_Tensor* tensor, bool as_content)
    : tensor_(tensor), field_(value_field(TF_TensorType(tensor))) {
  const TF_DataType type = TF_TensorType(tensor);
  if (as_content && type != TF_STRING && TF_DataTypeSize(type) > 0) {
    field_ = TensorProto::kTensorContentFieldNumber;
  }
  for (int i = 0; i < TF_NumDims(tensor); ++i) {
    const size_t size = dim_size(TF_Dim(tensor, i));
    shape_ += head_size(kDim, size) + size;
  }
  bytes_ = 1 + varint_size(static_cast<uint64_t>(type)) +
           head_size(TensorProto::kTensorShapeFieldNumber, shape_) + shape_;
  if (type == TF_STRING) {
    bytes_ += strings_size(tensor);
    return;
  }
  if (field_ == TensorProto::kTensorContentFieldNumber || lie_in_memory(type)) {
    values_ = TF_TensorByteSize(tensor);
  } else if (field_ != 0) {
    each_varint(tensor, [this](uint64_t value) { values_ += varint_size(value); });
  }
  // An empty field is not written.
  if (values_ > 0) bytes_ += head_size(field_, values_) + values_;
}

uint8_t* TensorWriter::write(uint8_t* to) const {
  const TF_DataType type = TF_TensorType(tensor_);
  to = CodedOutputStream::WriteTagToArray(
      WireFormatLite::MakeTag(TensorProto::kDtypeFieldNumber, WireFormatLite::WIRETYPE_VARINT), to);
  to = CodedOutputStream::WriteVarint64ToArray(static_cast<uint64_t>(type), to);
  to = write_head(TensorProto::kTensorShapeFieldNumber, shape_, to);
  for (int i = 0; i < TF_NumDims(tensor_); ++i) {
    const int64_t size = TF_Dim(tensor_, i);
    to = write_head(kDim, dim_size(size), to);
    if (size == 0) continue;
    to = CodedOutputStream::WriteTagToArray(
        WireFormatLite::MakeTag(kSize, WireFormatLite::WIRETYPE_VARINT), to);
    to = CodedOutputStream::WriteVarint64ToArray(static_cast<uint64_t>(size), to);
  }
  if (type == TF_STRING) return write_strings(tensor_, to);
  if (values_ == 0) return to;
  to = write_head(field_, values_, to);
  if (field_ == TensorProto::kTensorContentFieldNumber || lie_in_memory(type)) {
    return write_memory(tensor_, to);
  }
  each_varint(tensor_,
              [&to](uint64_t value) { to = CodedOutputStream::WriteVarint64ToArray(value, to); });
  return to;
}

}  // namespace hotrow_server
