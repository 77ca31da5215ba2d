// The checksum CRC-32C (Castagnoli; RFC 3720, B.4).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow_server {

uint32_t crc32c(const char* data, size_t bytes);

}  // namespace hotrow_server
