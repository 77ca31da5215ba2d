#include "core/store/store_layout.h"

#include <array>
#include <cstring>

#include "core/base/status.h"

namespace hotrow {
namespace {

constexpr char kDigits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

// CRC-16/XMODEM, as Redis Cluster's specification says.
uint32_t crc16(const char* data, size_t bytes) {
  static const auto table = [] {
    std::array<uint16_t, 256> made;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i << 8;
      for (int bit = 0; bit < 8; ++bit) crc = (crc << 1) ^ ((crc & 0x8000u) != 0 ? 0x1021u : 0u);
      made[i] = static_cast<uint16_t>(crc);
    }
    return made;
  }();
  uint32_t crc = 0;
  for (size_t i = 0; i < bytes; ++i) {
    crc = ((crc << 8) ^ table[((crc >> 8) ^ static_cast<uint8_t>(data[i])) & 0xffu]) & 0xffffu;
  }
  return crc;
}

// Writes a number in base 64, at least `least` digits; returns how many.
size_t put_number(uint64_t number, size_t least, char* out) {
  size_t digits = 1;
  while (digits < 11 && number >> (6 * digits) != 0) ++digits;
  if (digits < least) digits = least;
  for (size_t i = digits; i-- > 0; number >>= 6) out[i] = kDigits[number & 63];
  return digits;
}

// The tag of every shard: the first string, by length and order, whose slot is in the shard's
// range.
std::vector<std::string> make_tags(size_t shards) {
  std::vector<std::string> tags(shards);
  size_t missing = shards;
  const size_t range = kSlots / shards;
  for (size_t length = 1; missing > 0; ++length) {
    const uint64_t most = uint64_t{1} << (6 * length);
    char tag[8];
    for (uint64_t number = 0; number < most && missing > 0; ++number) {
      put_number(number, length, tag);
      std::string& place = tags[crc16(tag, length) % kSlots / range];
      if (!place.empty()) continue;
      place.assign(tag, length);
      --missing;
    }
  }
  return tags;
}

}  // namespace

uint32_t slot_of(const char* key, size_t bytes) {
  const auto* open = static_cast<const char*>(std::memchr(key, '{', bytes));
  if (open != nullptr) {
    const size_t rest = bytes - static_cast<size_t>(open + 1 - key);
    const auto* close = static_cast<const char*>(std::memchr(open + 1, '}', rest));
    if (close != nullptr && close != open + 1) {
      return crc16(open + 1, static_cast<size_t>(close - open - 1)) % kSlots;
    }
  }
  return crc16(key, bytes) % kSlots;
}

void check_shards(size_t shards) {
  if (shards < 1 || shards > kMostStoreShards || (shards & (shards - 1)) != 0) {
    fail(Code::kInvalidArgument, "%zu shards of a store; a power of two from 1 to %zu", shards,
         kMostStoreShards);
  }
}

StoreNames::StoreNames(size_t shards, uint64_t number) {
  check_shards(shards);
  char generation[16];
  const size_t digits = put_number(number, 1, generation);
  for (const std::string& tag : make_tags(shards)) {
    markers_.push_back("hr{" + tag + "}" + std::string(generation, digits));
    slots_.push_back(crc16(tag.data(), tag.size()) % kSlots);
  }
}

size_t StoreNames::page(size_t shard, size_t table, uint64_t page, char* name) const {
  const std::string& marker = markers_[shard];
  std::memcpy(name, marker.data(), marker.size());
  size_t length = marker.size();
  name[length++] = ':';
  length += put_number(table, 2, name + length);
  return length + put_number(page, 1, name + length);
}

}  // namespace hotrow
