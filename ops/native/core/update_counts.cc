#include "core/update_counts.h"

#include <algorithm>

#include "core/hash.h"
#include "core/stale_words.h"

namespace hotrow {
namespace {

constexpr size_t kLeast = 1024;

}  // namespace

UpdateCounts::UpdateCounts(size_t kept)
    : enough_(std::max(2 * kept, kLeast)), forget_at_(enough_) {}

size_t UpdateCounts::place_of(int64_t key) const {
  const size_t mask = entries_.size() - 1;
  size_t place = mix64(static_cast<uint64_t>(key)) & mask;
  while (entries_[place].used != kNobody && entries_[place].key != key) place = (place + 1) & mask;
  return place;
}

void UpdateCounts::rebuild(size_t size) {
  std::vector<Entry> old(size);
  old.swap(entries_);
  for (const Entry& entry : old) {
    if (entry.used != kNobody) entries_[place_of(entry.key)] = entry;
  }
}

void UpdateCounts::forget() {
  size_ = 0;
  for (Entry& entry : entries_) {
    if (entry.used == kOld) {
      entry.used = kNobody;
    } else if (entry.used == kAsked) {
      entry.used = kOld;
      ++size_;
    }
  }
  first_ = UpdateVersion::begin_after(first_);
  rebuild(entries_.size());
  forget_at_ = std::max(enough_, 2 * size_);
}

void UpdateCounts::watch(int64_t key) {
  if (entries_.empty()) entries_.resize(kLeast);
  if (Entry& entry = entries_[place_of(key)]; entry.used != kNobody) {
    entry.used = kAsked;
    return;
  }
  if (size_ >= forget_at_) forget();
  if ((size_ + 1) * 3 > entries_.size() * 2) rebuild(entries_.size() * 2);
  entries_[place_of(key)] = {key, first_, kAsked};
  ++size_;
}

uint32_t* UpdateCounts::find(int64_t key, bool asked) {
  if (entries_.empty()) return nullptr;
  Entry& entry = entries_[place_of(key)];
  if (entry.used == kNobody) return nullptr;
  if (asked) entry.used = kAsked;
  return &entry.updates;
}

void UpdateCounts::clear() {
  entries_.clear();
  size_ = 0;
  first_ = 0;
  forget_at_ = enough_;
}

}  // namespace hotrow
