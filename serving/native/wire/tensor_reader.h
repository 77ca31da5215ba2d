// A TensorProto out of the bytes of a request.
#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include "wire/tensor.h"

namespace hotrow_server {

// Reads the length and the TensorProto at the stream's place, as `decode` does; buffer: what the
// stream reads from its beginning. The form that clients send is read straight into the tensor: a
// type, a shape, then all values in one field. Any other goes through a message. *tensor is null
// when it is no tensor. False: the bytes are no TensorProto.
bool read_tensor(google::protobuf::io::CodedInputStream* in, grpc::ByteBuffer* buffer,
                 Tensor* tensor);

}  // namespace hotrow_server
