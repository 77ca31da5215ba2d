#include "core/table/occurrence_counter.h"

#include <algorithm>

#include "core/base/hash.h"
#include "core/base/room.h"
#include "core/base/sealed_bytes.h"

namespace hotrow {
namespace {

constexpr unsigned kLeastLog2 = 8;  // log2 of homes
constexpr size_t kSlack = 64;
constexpr uint64_t kCounterMagic = 0x3145544e55434852;  // "RHCUNTE1"

// The order of the keys. The top 5 bits of mix64 are the same in a partition, so they go last.
inline uint64_t mixed_of(int64_t key) {
  const uint64_t mixed = mix64(static_cast<uint64_t>(key));
  return mixed << 5 | mixed >> 59;
}

// Appends keys that come in ascending order.
class Appender {
 public:
  Appender(AnonymousArray<uint64_t>& mixed, AnonymousArray<uint32_t>& counts, size_t slots,
           unsigned log2_capacity)
      : mixed_(mixed), counts_(counts), slots_(slots), shift_(64 - log2_capacity) {}
  // False: there is no room before the last slot.
  bool append(uint64_t mixed, uint32_t count) {
    const size_t slot = std::max<size_t>(mixed >> shift_, next_);
    if (slot + 1 >= slots_) return false;
    mixed_[slot] = mixed;
    counts_[slot] = count;
    next_ = slot + 1;
    return true;
  }

 private:
  AnonymousArray<uint64_t>& mixed_;
  AnonymousArray<uint32_t>& counts_;
  size_t slots_;
  unsigned shift_;
  size_t next_ = 0;
};

}  // namespace

OccurrenceCounter::OccurrenceCounter(const AdmissionOptions& options)
    : occurrences_(options.occurrences) {
  rebuild(kLeastLog2, kSlack);
}

size_t OccurrenceCounter::lower_bound(uint64_t mixed) const {
  size_t slot = home(mixed);
  while (counts_[slot] != 0 && mixed_[slot] < mixed) ++slot;
  return slot;
}

bool OccurrenceCounter::count_occurrences(int64_t key, uint32_t times) {
  if (times == 0) return false;
  const uint64_t mixed = mixed_of(key);
  const size_t slot = lower_bound(mixed);
  const bool found = counts_[slot] != 0 && mixed_[slot] == mixed;
  const uint64_t count = static_cast<uint64_t>(found ? counts_[slot] : 0) + times;
  const bool admitted = count >= occurrences_;
  if (admitted && !found) return true;
  if (!found) reserve(mixed);
  if (recording_) {
    make_room(changes_);
    changes_.push_back({mixed, found ? counts_[slot] : 0});
  }
  if (admitted) {
    erase(slot);
    if (!recording_) shrink();
  } else if (found) {
    counts_[slot] = static_cast<uint32_t>(count);
  } else {
    insert(mixed, static_cast<uint32_t>(count));
  }
  return admitted;
}

void OccurrenceCounter::begin_changes() {
  changes_.clear();
  recording_ = true;
}

void OccurrenceCounter::keep_changes() noexcept {
  changes_.clear();
  recording_ = false;
  shrink();
}

void OccurrenceCounter::undo_changes() noexcept {
  for (; !changes_.empty(); changes_.pop_back()) {
    const auto [mixed, before] = changes_.back();
    const size_t slot = lower_bound(mixed);
    const bool found = counts_[slot] != 0 && mixed_[slot] == mixed;
    if (before == 0) {
      erase(slot);
    } else if (found) {
      counts_[slot] = before;
    } else {
      insert(mixed, before);  // `rebuild` left room
    }
  }
  keep_changes();
}

void OccurrenceCounter::reserve(uint64_t mixed) {
  if (4 * (size_ + 1) > size_t{3} << log2_capacity_) rebuild(log2_capacity_ + 1, kSlack);
  for (;;) {
    size_t end = lower_bound(mixed);
    while (counts_[end] != 0) ++end;
    if (end + 1 < counts_.size()) return;
    // The run at the end of the array fills the slack; the number of homes need not grow.
    rebuild(log2_capacity_, 2 * (counts_.size() - (size_t{1} << log2_capacity_)));
  }
}

// After `reserve`.
void OccurrenceCounter::insert(uint64_t mixed, uint32_t count) {
  const size_t slot = lower_bound(mixed);
  size_t end = slot;
  while (counts_[end] != 0) ++end;
  for (size_t i = end; i > slot; --i) {
    mixed_[i] = mixed_[i - 1];
    counts_[i] = counts_[i - 1];
  }
  mixed_[slot] = mixed;
  counts_[slot] = count;
  ++size_;
}

void OccurrenceCounter::erase(size_t slot) {
  for (; counts_[slot + 1] != 0 && home(mixed_[slot + 1]) <= slot; ++slot) {
    mixed_[slot] = mixed_[slot + 1];
    counts_[slot] = counts_[slot + 1];
  }
  counts_[slot] = 0;
  --size_;
}

void OccurrenceCounter::shrink() {
  try {
    while (log2_capacity_ > kLeastLog2 && size_ < size_t{1} << (log2_capacity_ - 3)) {
      rebuild(log2_capacity_ - 1, kSlack);
    }
  } catch (const std::exception&) {
    // The larger array does, too.
  }
}

void OccurrenceCounter::rebuild(unsigned log2_capacity, size_t slack) {
  for (;; slack *= 2) {
    const size_t slots = (size_t{1} << log2_capacity) + slack;
    AnonymousArray<uint64_t> mixed(slots + changes_.size());
    AnonymousArray<uint32_t> counts(slots + changes_.size());
    Appender appender(mixed, counts, slots, log2_capacity);
    bool fits = true;
    for (size_t i = 0; fits && i < counts_.size(); ++i) {
      if (counts_[i] != 0) fits = appender.append(mixed_[i], counts_[i]);
    }
    if (!fits) continue;
    mixed_.swap(mixed);
    counts_.swap(counts);
    log2_capacity_ = log2_capacity;
    return;
  }
}

void OccurrenceCounter::clear() {
  mixed_ = AnonymousArray<uint64_t>();
  counts_ = AnonymousArray<uint32_t>();
  size_ = 0;
  changes_.clear();
  rebuild(kLeastLog2, kSlack);
}

// Magic, occurrences, number of keys; their mixed bits, ascending; their counts.
std::vector<uint8_t> OccurrenceCounter::save() const {
  SealedBytesWriter bytes;
  bytes.reserve(24 + size_ * 12);
  bytes.put(kCounterMagic);
  bytes.put(static_cast<uint64_t>(occurrences_));
  bytes.put(static_cast<uint64_t>(size_));
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] != 0) bytes.put(mixed_[i]);
  }
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] != 0) bytes.put(counts_[i]);
  }
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
  AdmissionOptions options;
  options.occurrences = occurrences_;
  OccurrenceCounter fresh(options);
  for (size_t i = 0; i < keys; ++i) {
    fresh.reserve(mixed[i]);
    fresh.insert(mixed[i], counts[i]);
  }
  *this = std::move(fresh);
}

}  // namespace hotrow
