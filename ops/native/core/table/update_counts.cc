#include "core/table/update_counts.h"

#include <algorithm>

#include "core/base/hash.h"

namespace hotrow {
namespace {

constexpr size_t kLeast = 1024;

uint64_t hash_of(int64_t key) { return mix64(static_cast<uint64_t>(key)); }

}  // namespace

UpdateCounts::UpdateCounts(size_t kept)
    : enough_(std::max(2 * kept, kLeast)), forget_at_(enough_), index_(index_memory_) {}

uint32_t UpdateCounts::find_entry(int64_t key) const {
  return index_.find(hash_of(key), [&](uint32_t entry) { return entries_[entry].key == key; });
}

void UpdateCounts::add(const Entry& entry) {
  entries_.push_back(entry);
  try {
    index_.insert(
        hash_of(entry.key), static_cast<uint32_t>(entries_.size() - 1),
        [&](uint32_t other) { return hash_of(entries_[other].key); }, [](uint32_t) {});
  } catch (...) {
    entries_.pop_back();
    throw;
  }
}

void UpdateCounts::forget() {
  std::vector<Entry> old;
  old.swap(entries_);
  index_memory_.clear();
  index_.clear();
  for (const Entry& entry : old) {
    if (entry.asked) add({entry.key, entry.updates, false});
  }
  first_ = UpdateVersion::begin_after(first_);
  forget_at_ = std::max(enough_, 2 * entries_.size());
}

void UpdateCounts::watch(int64_t key) {
  if (const uint32_t known = find_entry(key); known != KeyIndex::kAbsent) {
    entries_[known].asked = true;
    return;
  }
  if (entries_.size() >= forget_at_) forget();
  add({key, first_, true});
}

uint32_t* UpdateCounts::find(int64_t key, bool asked) {
  const uint32_t known = find_entry(key);
  if (known == KeyIndex::kAbsent) return nullptr;
  if (asked) entries_[known].asked = true;
  return &entries_[known].updates;
}

void UpdateCounts::clear() {
  entries_.clear();
  index_memory_.clear();
  index_.clear();
  first_ = 0;
  forget_at_ = enough_;
}

}  // namespace hotrow
