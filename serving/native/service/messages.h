// Messages of gRPC's buffers.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>
#include <grpcpp/support/status.h>

#include "base/refused.h"

namespace hotrow_server {

// Fails with Refused.
template <typename Message>
Message parse(grpc::ByteBuffer* buffer) {
  Message message;
  grpc::ProtoBufferReader reader(buffer);
  if (!reader.status().ok() || !message.ParseFromZeroCopyStream(&reader)) refuse_unparsed();
  return message;
}

inline void serialize(const google::protobuf::Message& message, grpc::ByteBuffer* buffer) {
  bool own = false;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, buffer,
                                                                                 &own);
  if (!status.ok()) throw Refused(status.error_code(), status.error_message());
}

}  // namespace hotrow_server
