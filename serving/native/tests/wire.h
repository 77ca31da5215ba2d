// Shared by the tests of the wire: byte buffers, and TensorProtos of every type.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <complex>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tensorflow/core/framework/tensor.pb.h"

namespace hotrow_server {

// A buffer of one slice, or of slices of `piece` bytes, as from a socket.
inline grpc::ByteBuffer buffer_of(const std::string& bytes, size_t piece = 0) {
  std::vector<grpc::Slice> slices;
  if (piece == 0) piece = std::max<size_t>(bytes.size(), 1);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.emplace_back(bytes.substr(at, piece));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

inline std::string bytes_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

inline tensorflow::TensorProto head_of(tensorflow::DataType type,
                                       const std::vector<int64_t>& shape) {
  tensorflow::TensorProto proto;
  proto.set_dtype(type);
  proto.mutable_tensor_shape();
  for (const int64_t size : shape) proto.mutable_tensor_shape()->add_dim()->set_size(size);
  return proto;
}

// A type with three values, their typed field, and their bytes in memory.
struct Kind {
  tensorflow::DataType type;
  tensorflow::TensorProto values;  // the field alone
  std::string memory;              // of numbers
  int entries;                     // entries of the field for one value
};

template <typename Value, typename Add>
Kind kind_of(tensorflow::DataType type, const std::vector<Value>& values, Add add,
             int entries = 1) {
  Kind kind{type, {}, std::string(values.size() * sizeof(Value), '\0'), entries};
  for (const Value& value : values) add(&kind.values, value);
  std::memcpy(kind.memory.data(), values.data(), kind.memory.size());
  return kind;
}

template <typename Value>
std::vector<Value> extremes() {
  return {std::numeric_limits<Value>::lowest(), Value{1}, std::numeric_limits<Value>::max()};
}

// All types that have a wire form, with their extremes.
inline std::vector<Kind> all_kinds() {
  using Proto = tensorflow::TensorProto;
  const auto add_int = [](Proto* to, auto value) { to->add_int_val(value); };
  const auto add_half = [](Proto* to, uint16_t value) { to->add_half_val(value); };
  std::vector<Kind> kinds{
      kind_of<float>(tensorflow::DT_FLOAT, {-0.0f, std::numeric_limits<float>::infinity(), 1e-45f},
                     [](Proto* to, float value) { to->add_float_val(value); }),
      kind_of<double>(tensorflow::DT_DOUBLE, {1.0 / 3, -1e308, 2},
                      [](Proto* to, double value) { to->add_double_val(value); }),
      kind_of(tensorflow::DT_INT8, extremes<int8_t>(), add_int),
      kind_of(tensorflow::DT_INT16, extremes<int16_t>(), add_int),
      kind_of(tensorflow::DT_INT32, extremes<int32_t>(), add_int),
      kind_of(tensorflow::DT_UINT8, extremes<uint8_t>(), add_int),
      kind_of(tensorflow::DT_UINT16, extremes<uint16_t>(), add_int),
      kind_of(tensorflow::DT_INT64, extremes<int64_t>(),
              [](Proto* to, int64_t value) { to->add_int64_val(value); }),
      kind_of(tensorflow::DT_UINT32, extremes<uint32_t>(),
              [](Proto* to, uint32_t value) { to->add_uint32_val(value); }),
      kind_of(tensorflow::DT_UINT64, extremes<uint64_t>(),
              [](Proto* to, uint64_t value) { to->add_uint64_val(value); }),
      kind_of<uint16_t>(tensorflow::DT_HALF, {0, 0x2e66, 0xfbff}, add_half),
      kind_of<uint16_t>(tensorflow::DT_BFLOAT16, {0, 0x3dcd, 0xff62}, add_half),
      kind_of<std::complex<float>>(
          tensorflow::DT_COMPLEX64, {{1, 2}, {0, -3}, {4, 0}},
          [](Proto* to, std::complex<float> value) {
            to->add_scomplex_val(value.real());
            to->add_scomplex_val(value.imag());
          },
          2),
      kind_of<std::complex<double>>(
          tensorflow::DT_COMPLEX128, {{1.0 / 3, 2}, {0, -3}, {4, 0}},
          [](Proto* to, std::complex<double> value) {
            to->add_dcomplex_val(value.real());
            to->add_dcomplex_val(value.imag());
          },
          2),
      kind_of<char>(tensorflow::DT_BOOL, {1, 0, 1},
                    [](Proto* to, char value) { to->add_bool_val(value != 0); }),
  };
  Kind text{tensorflow::DT_STRING, {}, "", 1};
  text.values.add_string_val("");
  text.values.add_string_val(std::string(80, '\xff') + '\0');
  text.values.add_string_val("Z\xc3\xbcrich");
  kinds.push_back(text);
  return kinds;
}

}  // namespace hotrow_server
