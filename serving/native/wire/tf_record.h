// Records of TFRecord files: length (uint64), its checksum, the data, their checksum (uint32, all
// little-endian). A checksum is a CRC-32C, turned and shifted.
#pragma once

#include <cstddef>
#include <string>

namespace hotrow_server {

inline constexpr size_t kRecordHead = 12, kRecordFoot = 4;

// record: the data, with room for the head before and for the foot after them, which are filled in.
void seal_record(std::string* record);

}  // namespace hotrow_server
