// Records of TFRecord files: length (uint64), its checksum, the data, their checksum (uint32, all
// little-endian). A checksum is a masked CRC-32C: rotated, plus a constant.
#pragma once

#include <cstddef>
#include <string>

namespace hotrow_server {

inline constexpr size_t kRecordHead = 12, kRecordFoot = 4;

// Fills in head and foot. record: the data, with room for the head before them and for the foot
// after them.
void seal_record(std::string* record);

}  // namespace hotrow_server
