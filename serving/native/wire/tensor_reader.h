// Reads a TensorProto from the bytes of a request.
#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include "wire/tensor.h"

namespace hotrow_server {

// Reads the length and the TensorProto at the stream's position, as `decode` does; buffer: the
// buffer that the stream reads. The usual form of clients is read straight into the tensor: a type,
// a shape, then all values in one field. Any other form is parsed as a message. *tensor is null
// when it is not a valid tensor. False: the bytes are not a TensorProto.
bool read_tensor(google::protobuf::io::CodedInputStream* in, grpc::ByteBuffer* buffer,
                 Tensor* tensor);

}  // namespace hotrow_server
