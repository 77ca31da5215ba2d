#include "wire/tensor_reader.h"

#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>

#include "wire/fields.h"

namespace hotrow_server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using tensorflow::TensorProto;

// Values whose bytes on the wire equal those in memory. The last one repeats.
template <typename Value>
bool copy_values(CodedInputStream* in, size_t bytes, size_t count, Value* to) {
  const size_t given = std::min(bytes / sizeof(Value), count);
  if (bytes % sizeof(Value) != 0 || given == 0) return false;
  if (!in->ReadRaw(to, static_cast<int>(given * sizeof(Value)))) return false;
  std::fill(to + given, to + count, to[given - 1]);
  return in->Skip(static_cast<int>(bytes - given * sizeof(Value)));
}

template <typename Value>
bool read_varints(CodedInputStream* in, size_t bytes, size_t count, Value* to) {
  const int end = in->CurrentPosition() + static_cast<int>(bytes);
  size_t given = 0;
  while (in->CurrentPosition() < end) {
    uint64_t value;
    if (given == count || !in->ReadVarint64(&value)) return false;
    to[given++] = static_cast<Value>(value);
  }
  if (given == 0 || in->CurrentPosition() != end) return false;
  std::fill(to + given, to + count, to[given - 1]);
  return true;
}

bool read_content(CodedInputStream* in, size_t bytes, TF_Tensor* to) {
  return bytes == TF_TensorByteSize(to) && in->ReadRaw(TF_TensorData(to), static_cast<int>(bytes));
}

// Reads all values of a tensor from the field `tag` of `bytes` bytes; false when they are encoded
// in another way.
bool read_values(CodedInputStream* in, uint32_t tag, size_t bytes, size_t count, TF_Tensor* to) {
  if (tag == delimited(TensorProto::kTensorContentFieldNumber)) return read_content(in, bytes, to);
  void* const data = TF_TensorData(to);
  switch (TF_TensorType(to)) {
    case TF_FLOAT:
      return tag == delimited(TensorProto::kFloatValFieldNumber) &&
             copy_values(in, bytes, count, static_cast<float*>(data));
    case TF_DOUBLE:
      return tag == delimited(TensorProto::kDoubleValFieldNumber) &&
             copy_values(in, bytes, count, static_cast<double*>(data));
    case TF_INT64:
      return tag == delimited(TensorProto::kInt64ValFieldNumber) &&
             read_varints(in, bytes, count, static_cast<int64_t*>(data));
    case TF_INT32:
      return tag == delimited(TensorProto::kIntValFieldNumber) &&
             read_varints(in, bytes, count, static_cast<int32_t*>(data));
    default:
      return false;
  }
}

// Reads one string, of the field's length.
bool read_string_value(CodedInputStream* in, uint32_t bytes, TF_TString* to) {
  // Allocates nothing for bytes that were not sent.
  if (in->BytesUntilLimit() < static_cast<int>(bytes)) return false;
  return in->ReadRaw(TF_TString_ResizeUninitialized(to, bytes), static_cast<int>(bytes));
}

// Reads the strings, starting after the first field's length; the last one repeats.
bool read_strings(CodedInputStream* in, uint32_t bytes, size_t count, TF_Tensor* tensor) {
  auto* const to = static_cast<TF_TString*>(TF_TensorData(tensor));
  size_t given = 0;
  for (;;) {
    if (given == count || !read_string_value(in, bytes, &to[given++])) return false;
    if (in->BytesUntilLimit() == 0) break;
    if (in->ReadTag() != delimited(TensorProto::kStringValFieldNumber) ||
        !in->ReadVarint32(&bytes)) {
      return false;
    }
  }
  const char* const last = TF_TString_GetDataPointer(&to[given - 1]);
  const size_t length = TF_TString_GetSize(&to[given - 1]);
  for (size_t i = given; i < count; ++i) TF_TString_Copy(&to[i], last, length);
  return true;
}

// Null: the tensor is encoded in another way.
Tensor read_directly(CodedInputStream* in) {
  TensorProto head;
  for (uint32_t tag; (tag = in->ReadTag()) != 0;) {
    uint64_t number;
    uint32_t bytes;
    if (tag ==
        WireFormatLite::MakeTag(TensorProto::kDtypeFieldNumber, WireFormatLite::WIRETYPE_VARINT)) {
      if (!in->ReadVarint64(&number)) return nullptr;
      head.set_dtype(static_cast<tensorflow::DataType>(number));
      continue;
    }
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED ||
        !in->ReadVarint32(&bytes) || in->BytesUntilLimit() < static_cast<int>(bytes)) {
      return nullptr;
    }
    if (tag == delimited(TensorProto::kTensorShapeFieldNumber)) {
      const auto limit = in->PushLimit(static_cast<int>(bytes));
      const bool read = head.mutable_tensor_shape()->MergeFromCodedStream(in);
      const int left = in->BytesUntilLimit();
      in->PopLimit(limit);
      if (!read || left != 0) return nullptr;
      continue;
    }
    const bool strings = head.dtype() == tensorflow::DT_STRING;
    if (strings != (tag == delimited(TensorProto::kStringValFieldNumber))) return nullptr;
    size_t count;
    Tensor tensor = allocate(head, static_cast<size_t>(in->BytesUntilLimit()), &count);
    if (tensor == nullptr) return nullptr;
    const bool read = strings ? read_strings(in, bytes, count, tensor.get())
                              : read_values(in, tag, bytes, count, tensor.get());
    return read && in->BytesUntilLimit() == 0 ? std::move(tensor) : nullptr;
  }
  return nullptr;
}

}  // namespace

bool read_tensor(CodedInputStream* in, grpc::ByteBuffer* buffer, Tensor* tensor) {
  uint32_t bytes;
  if (!in->ReadVarint32(&bytes)) return false;
  const int start = in->CurrentPosition();
  const auto limit = in->PushLimit(static_cast<int>(bytes));
  *tensor = read_directly(in);
  if (*tensor == nullptr) {
    grpc::ProtoBufferReader again(buffer);
    TensorProto proto;
    CodedInputStream from_start(&again);
    if (!from_start.Skip(start)) return false;
    from_start.PushLimit(static_cast<int>(bytes));
    if (!proto.ParseFromCodedStream(&from_start) || from_start.BytesUntilLimit() != 0) return false;
    *tensor = decode(proto);
    if (!in->Skip(start + static_cast<int>(bytes) - in->CurrentPosition())) return false;
  }
  in->PopLimit(limit);
  return true;
}

}  // namespace hotrow_server
