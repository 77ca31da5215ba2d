#include "wire/tf_record.h"

#include <cstdint>
#include <cstring>

#include "wire/crc32c.h"

namespace hotrow_server {
namespace {

uint32_t masked_crc(const char* data, size_t bytes) {
  const uint32_t crc = crc32c(data, bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

}  // namespace

void seal_record(std::string* record) {
  char* const head = record->data();
  const uint64_t length = record->size() - kRecordHead - kRecordFoot;
  std::memcpy(head, &length, sizeof length);
  const uint32_t of_length = masked_crc(head, sizeof length);
  std::memcpy(head + sizeof length, &of_length, sizeof of_length);
  const uint32_t of_data = masked_crc(head + kRecordHead, length);
  std::memcpy(head + kRecordHead + length, &of_data, sizeof of_data);
}

}  // namespace hotrow_server
