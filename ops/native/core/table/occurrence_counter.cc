#include "core/table/occurrence_counter.h"

#include <utility>

#include "core/base/sealed_bytes.h"

namespace hotrow {
namespace {

constexpr uint64_t kCounterMagic = 0x3145544e55434852;  // "RHCUNTE1"

}  // namespace

bool OccurrenceCounter::count_occurrences(int64_t key, uint32_t times) {
  if (times == 0) return false;
  uint32_t* found = counts_.find(key);
  const uint64_t count = static_cast<uint64_t>(found != nullptr ? *found : 0) + times;
  const bool admitted = count >= occurrences_;
  if (admitted && found != nullptr) {
    counts_.erase(found);
  } else if (found != nullptr) {
    counts_.set(found, static_cast<uint32_t>(count));
  } else if (!admitted) {
    counts_.insert(key, static_cast<uint32_t>(count));
  }
  return admitted;
}

// Magic, occurrences, number of keys; their mixed bits, ascending; their counts.
std::vector<uint8_t> OccurrenceCounter::save() const {
  SealedBytesWriter bytes;
  bytes.reserve(24 + counts_.size() * 12);
  bytes.put(kCounterMagic);
  bytes.put(static_cast<uint64_t>(occurrences_));
  bytes.put(static_cast<uint64_t>(counts_.size()));
  counts_.each([&](uint64_t mixed, uint32_t) { bytes.put(mixed); });
  counts_.each([&](uint64_t, uint32_t count) { bytes.put(count); });
  return bytes.seal();
}

void OccurrenceCounter::restore(const uint8_t* data, size_t size) {
  SealedBytesReader bytes("admission counter", data, size);
  if (bytes.get<uint64_t>() != kCounterMagic) {
    fail(Code::kFailedPrecondition,
         "the saved admission state is not of a counter; restore it with the same admission");
  }
  const uint64_t occurrences = bytes.get<uint64_t>();
  if (occurrences != occurrences_) {
    fail(Code::kFailedPrecondition,
         "the saved admission counter is of %llu occurrences, this table's of %u",
         static_cast<unsigned long long>(occurrences), occurrences_);
  }
  const uint64_t keys = bytes.get<uint64_t>();
  if (keys != bytes.left() / 12 || bytes.left() % 12 != 0) bytes.damaged("has a wrong length");
  std::vector<uint64_t> mixed(keys);
  std::vector<uint32_t> counts(keys);
  bytes.get_array(mixed.data(), keys);
  bytes.get_array(counts.data(), keys);
  for (size_t i = 0; i < keys; ++i) {
    if (i > 0 && mixed[i - 1] >= mixed[i]) bytes.damaged("has keys out of order");
    if (counts[i] == 0 || counts[i] >= occurrences_) bytes.damaged("has a count out of range");
  }
  KeyMap fresh;
  for (size_t i = 0; i < keys; ++i) fresh.insert(KeyMap::key_of(mixed[i]), counts[i]);
  counts_ = std::move(fresh);
}

}  // namespace hotrow
