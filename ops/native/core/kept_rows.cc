#include "core/kept_rows.h"

#include <algorithm>
#include <cstring>

namespace hotrow {
namespace {

LineLayout of_floats(const LineLayout& layout) {
  return {layout.width, RowType::kFloat32, RowType::kFloat32, layout.vectors, layout.scalars};
}

size_t stride_of(size_t facts_offset) {
  return (facts_offset + sizeof(KeptRows::Facts) + 7) / 8 * 8;
}

}  // namespace

KeptRows::KeptRows(const LineLayout& layout, size_t rows)
    : layout_(of_floats(layout)),
      sum_offset_(sizeof(RowHeader) + layout_.bytes()),
      facts_offset_(sum_offset_ + layout_.width * sizeof(float)),
      cache_(stride_of(facts_offset_), std::max<size_t>(rows, 1), CachePolicy::kLfu) {}

void KeptRows::begin_batch() {
  cache_.unpin(pinned_.data(), pinned_.size(), RowCache::kLookup);
  pinned_.clear();
}

uint32_t KeptRows::find(int64_t key) const {
  return cache_.find(mix64(static_cast<uint64_t>(key)), key);
}

uint32_t KeptRows::use(int64_t key) {
  const uint64_t hash = mix64(static_cast<uint64_t>(key));
  const uint32_t slot = cache_.find(hash, key);
  cache_.note_use(hash, slot);
  if (slot != kNone) {
    cache_.pin(slot, RowCache::kLookup);
    pinned_.push_back(slot);
  }
  return slot;
}

uint32_t KeptRows::take(int64_t key, std::vector<PendingGradient>* evicted) {
  const uint64_t hash = mix64(static_cast<uint64_t>(key));
  const uint32_t slot = cache_.choose(hash, RowCache::Admit::kIfWorthMore);
  if (slot == kNone) return kNone;
  if (cache_.used(slot)) {
    if (facts(slot).updates > 0) evicted->push_back(pending_of(slot));
    cache_.release(slot);
  }
  cache_.put(slot, hash, key, 0);
  cache_.pin(slot, RowCache::kLookup);
  pinned_.push_back(slot);
  std::memset(line(slot) + sizeof(RowHeader), 0, stride_of(facts_offset_) - sizeof(RowHeader));
  return slot;
}

float* KeptRows::weights(uint32_t slot) {
  return reinterpret_cast<float*>(line(slot) + sizeof(RowHeader));
}

float* KeptRows::state(uint32_t slot) {
  return reinterpret_cast<float*>(line(slot) + sizeof(RowHeader) + layout_.state_offset());
}

float* KeptRows::sum(uint32_t slot) { return reinterpret_cast<float*>(line(slot) + sum_offset_); }

KeptRows::Facts& KeptRows::facts(uint32_t slot) {
  return *reinterpret_cast<Facts*>(line(slot) + facts_offset_);
}

PendingGradient KeptRows::pending_of(uint32_t slot) {
  Facts& of = facts(slot);
  float* const from = sum(slot);
  PendingGradient pending{cache_.header(slot).key, of.updates, of.lookups,
                          std::vector<float>(from, from + layout_.width)};
  std::fill_n(from, layout_.width, 0.0f);
  of.version += of.updates;
  of.updates = of.lookups = 0;
  return pending;
}

void KeptRows::push_all(std::vector<PendingGradient>* pending) {
  for (uint32_t slot = 0; slot < cache_.slots(); ++slot) {
    if (cache_.used(slot) && facts(slot).updates > 0) pending->push_back(pending_of(slot));
  }
}

void KeptRows::clear() {
  pinned_.clear();
  cache_.clear();
}

size_t UpdateCounts::place_of(int64_t key) const {
  const size_t mask = entries_.size() - 1;
  size_t place = mix64(static_cast<uint64_t>(key)) & mask;
  while (entries_[place].used != 0 && entries_[place].key != key) place = (place + 1) & mask;
  return place;
}

uint32_t UpdateCounts::watch(int64_t key) {
  if (entries_.empty()) entries_.resize(1024);
  size_t place = place_of(key);
  if (entries_[place].used != 0) return entries_[place].updates;
  if ((size_ + 1) * 3 > entries_.size() * 2) {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.used != 0) entries_[place_of(entry.key)] = entry;
    }
    place = place_of(key);
  }
  entries_[place] = {key, 0, 1};
  ++size_;
  return 0;
}

uint32_t* UpdateCounts::find(int64_t key) {
  if (entries_.empty()) return nullptr;
  Entry& entry = entries_[place_of(key)];
  return entry.used == 0 ? nullptr : &entry.updates;
}

void UpdateCounts::clear() {
  entries_.clear();
  size_ = 0;
}

}  // namespace hotrow
