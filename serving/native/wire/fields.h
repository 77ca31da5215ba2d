// Heads of length-delimited fields on protobuf's wire.
#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstddef>
#include <cstdint>

namespace hotrow_server {

// The tag of a field of text, bytes or a message.
constexpr uint32_t delimited(int field) {
  using google::protobuf::internal::WireFormatLite;
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

// Writes the tag and the length of what follows; returns the place after them.
inline uint8_t* write_head(int field, size_t bytes, uint8_t* to) {
  using google::protobuf::io::CodedOutputStream;
  to = CodedOutputStream::WriteTagToArray(delimited(field), to);
  return CodedOutputStream::WriteVarint64ToArray(bytes, to);
}

}  // namespace hotrow_server
