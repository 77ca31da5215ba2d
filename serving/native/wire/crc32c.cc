#include "wire/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace hotrow_server {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
constexpr size_t kAtOnce = 8;
using Tables = std::array<std::array<uint32_t, 256>, kAtOnce>;

// tables[k][b]: of the byte b and k zeros after it ("slicing by 8", Kounavis and Berry 2005).
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < kAtOnce; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32c(const char* data, size_t bytes) {
  uint32_t crc = ~uint32_t{0};
  for (; bytes >= kAtOnce; data += kAtOnce, bytes -= kAtOnce) {
    uint64_t word;
    std::memcpy(&word, data, kAtOnce);
    word ^= crc;
    crc = 0;
    for (size_t i = 0; i < kAtOnce; ++i) crc ^= kTables[kAtOnce - 1 - i][(word >> (8 * i)) & 0xFF];
  }
  for (; bytes > 0; ++data, --bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(*data)) & 0xFF];
  }
  return ~crc;
}

}  // namespace hotrow_server
