// CRC-32C against the examples of RFC 3720, and the seal of a record.
#include "wire/crc32c.h"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <string>

#include "wire/tf_record.h"

namespace hotrow_server {
namespace {

uint32_t checksum(const std::string& data) { return crc32c(data.data(), data.size()); }

TEST_CASE("crc32c is that of RFC 3720, B.4") {
  std::string up(32, '\0'), down(32, '\0');
  std::iota(up.begin(), up.end(), '\0');
  std::iota(down.rbegin(), down.rend(), '\0');
  CHECK(checksum("") == 0);
  CHECK(checksum(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(checksum(std::string(32, '\xff')) == 0x62a8ab43);
  CHECK(checksum(up) == 0x46dd794e);
  CHECK(checksum(down) == 0x113fdb5c);
  CHECK(checksum("123456789") == 0xe3069283);
}

TEST_CASE("crc32c does not depend on where the data lie") {
  const std::string data = "0123456789abcdefghijklmnopqrstuvwxyz";
  for (size_t shift = 0; shift < 16; ++shift) {
    for (size_t size = 0; size <= data.size(); ++size) {
      const std::string moved = std::string(shift, '?') + data;
      CAPTURE(shift);
      CAPTURE(size);
      CHECK(crc32c(moved.data() + shift, size) == crc32c(data.data(), size));
    }
  }
}

uint64_t number(const std::string& bytes, size_t at, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, size);
  return value;
}

uint32_t masked(const char* data, size_t size) {
  const uint32_t sum = crc32c(data, size);
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8u;
}

TEST_CASE("a sealed record has its length, its data and both checksums") {
  for (const auto& data : {std::string(), std::string("a"), std::string(70000, 'x')}) {
    std::string record(kRecordHead, '\0');
    record += data;
    record.append(kRecordFoot, '\0');
    seal_record(&record);
    REQUIRE(record.size() == data.size() + 16);
    CHECK(number(record, 0, 8) == data.size());
    CHECK(number(record, 8, 4) == masked(record.data(), 8));
    CHECK(record.substr(12, data.size()) == data);
    CHECK(number(record, 12 + data.size(), 4) == masked(data.data(), data.size()));
  }
}

}  // namespace
}  // namespace hotrow_server
