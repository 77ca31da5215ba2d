#include "core/kept_rows.h"

#include <algorithm>
#include <cstring>

namespace hotrow {
namespace {

LineLayout of_floats(const LineLayout& layout) {
  return {layout.width, RowType::kFloat32, RowType::kFloat32, layout.vectors, layout.scalars};
}

// Uses of a row's worth of all, after which frequencies are halved.
constexpr uint64_t kUsesToFade = 64;
constexpr int kVictims = 16;

size_t sketch_width(size_t rows) {
  size_t width = 256;
  while (width < 8 * rows) width *= 2;
  return width;
}

size_t stride_of(size_t facts_offset) {
  return (facts_offset + sizeof(KeptRows::Facts) + 7) / 8 * 8;
}

}  // namespace

KeptRows::KeptRows(const LineLayout& layout, size_t rows)
    : layout_(of_floats(layout)),
      sum_offset_(sizeof(RowHeader) + layout_.bytes()),
      facts_offset_(sum_offset_ + layout_.width * sizeof(float)),
      stride_(stride_of(facts_offset_)),
      capacity_(std::max<size_t>(rows, 1)),
      lines_(capacity_ * stride_),
      sketch_(kSketchRows * sketch_width(capacity_), 0) {}

void KeptRows::begin_batch() {
  for (uint32_t slot : pinned_) is_pinned_[slot] = 0;
  pinned_.clear();
}

void KeptRows::pin(uint32_t slot) {
  if (is_pinned_[slot] != 0) return;
  is_pinned_[slot] = 1;
  pinned_.push_back(slot);
}

uint8_t& KeptRows::counter(uint64_t hash, size_t row) {
  const size_t width = sketch_.size() / kSketchRows;
  return sketch_[row * width + (mix64(hash + row) & (width - 1))];
}

uint32_t KeptRows::uses_outside(uint64_t hash) {
  uint8_t least = 255;
  for (size_t row = 0; row < kSketchRows; ++row) least = std::min(least, counter(hash, row));
  return least;
}

void KeptRows::note_outside(uint64_t hash) {
  const uint32_t before = uses_outside(hash);
  if (before == 255) return;
  for (size_t row = 0; row < kSketchRows; ++row) {
    uint8_t& count = counter(hash, row);
    if (count == before) ++count;
  }
}

void KeptRows::fade() {
  for (uint32_t& uses : uses_) uses /= 2;
  for (uint8_t& count : sketch_) count /= 2;
  since_fade_ = 0;
}

uint32_t KeptRows::find(int64_t key) const {
  const auto found = slot_of_.find(key);
  return found == slot_of_.end() ? kNone : found->second;
}

uint32_t KeptRows::use(int64_t key) {
  if (++since_fade_ > kUsesToFade * capacity_) fade();
  const uint32_t slot = find(key);
  if (slot == kNone) {
    note_outside(mix64(static_cast<uint64_t>(key)));
  } else {
    ++uses_[slot];
    pin(slot);
  }
  return slot;
}

uint32_t KeptRows::victim() {
  uint32_t least = kNone;
  for (int looked = 0; looked < kVictims; ++looked) {
    random_ = mix64(random_);
    const uint32_t slot = static_cast<uint32_t>(random_ % uses_.size());
    if (is_pinned_[slot] == 0 && (least == kNone || uses_[slot] < uses_[least])) least = slot;
  }
  return least;
}

uint32_t KeptRows::take(int64_t key, std::vector<PendingGradient>* evicted) {
  const uint32_t uses = uses_outside(mix64(static_cast<uint64_t>(key)));
  uint32_t slot = static_cast<uint32_t>(uses_.size());
  if (uses_.size() < capacity_) {
    uses_.push_back(0);
    is_pinned_.push_back(0);
  } else {
    slot = victim();
    if (slot == kNone || uses_[slot] >= uses) return kNone;
    if (facts(slot).updates > 0) evicted->push_back(pending_of(slot));
    slot_of_.erase(this->key(slot));
  }
  std::memset(line(slot), 0, stride_);
  const RowHeader header{key, 0, 0};
  std::memcpy(line(slot), &header, sizeof(header));
  slot_of_[key] = slot;
  uses_[slot] = uses;
  pin(slot);
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
  PendingGradient pending{key(slot), of.updates, of.lookups,
                          std::vector<float>(from, from + layout_.width)};
  std::fill_n(from, layout_.width, 0.0f);
  of.version += of.updates;
  of.updates = of.lookups = 0;
  return pending;
}

void KeptRows::push_all(std::vector<PendingGradient>* pending) {
  for (uint32_t slot = 0; slot < uses_.size(); ++slot) {
    if (facts(slot).updates > 0) pending->push_back(pending_of(slot));
  }
}

void KeptRows::clear() {
  slot_of_.clear();
  uses_.clear();
  is_pinned_.clear();
  pinned_.clear();
  std::fill(sketch_.begin(), sketch_.end(), 0);
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
