#include "core/table/replica_cache.h"

#include <algorithm>
#include <cstring>

#include "core/table/table.h"

namespace hotrow {
namespace {

LineLayout of_floats(const LineLayout& layout) {
  return {layout.width, RowType::kFloat32, RowType::kFloat32, layout.vectors, layout.scalars};
}

bool alike(const LineLayout& a, const LineLayout& b) {
  return a.width == b.width && a.vectors == b.vectors && a.scalars == b.scalars;
}

// Frequencies are halved after this many uses for each row of the capacity.
constexpr uint64_t kUsesToDecay = 64;
constexpr int kVictims = 16;

size_t power_of_two(size_t least) {
  size_t size = 256;
  while (size < least) size *= 2;
  return size;
}

size_t stride_of(size_t facts_offset) {
  return (facts_offset + sizeof(ReplicaCache::Facts) + 7) / 8 * 8;
}

}  // namespace

ReplicaCache::ReplicaCache(const LineLayout& layout, size_t rows, size_t tables)
    : layout_(of_floats(layout)),
      sum_offset_(sizeof(RowHeader) + layout_.bytes()),
      facts_offset_(sum_offset_ + layout_.width * sizeof(float)),
      stride_(stride_of(facts_offset_)),
      capacity_(std::clamp<size_t>(rows, 1, kNone - 1)),
      lines_(capacity_ * stride_),
      index_(index_memory_),
      evicted_(tables),
      sketch_(kSketchRows * power_of_two(8 * capacity_), 0) {}

uint64_t ReplicaCache::hash_of(size_t table, int64_t key) {
  return mix64(static_cast<uint64_t>(key) + 0x9e3779b97f4a7c15u * table);
}

uint32_t ReplicaCache::find(size_t table, int64_t key) const {
  return index_.find(hash_of(table, key), [&](uint32_t slot) {
    return slots_[slot].key == key && slots_[slot].table == table;
  });
}

void ReplicaCache::insert(uint64_t hash, uint32_t slot) {
  index_.insert(
      hash, slot, [&](uint32_t other) { return hash_of(slots_[other].table, slots_[other].key); },
      [](uint32_t) {});
}

void ReplicaCache::erase(uint32_t slot) {
  index_.erase(hash_of(slots_[slot].table, slots_[slot].key), slot);
  slots_[slot].table = kFree;
}

uint8_t& ReplicaCache::counter(uint64_t hash, size_t row) {
  const size_t width = sketch_.size() / kSketchRows;
  return sketch_[row * width + (mix64(hash + row) & (width - 1))];
}

uint32_t ReplicaCache::uses_outside(uint64_t hash) {
  uint8_t least = 255;
  for (size_t row = 0; row < kSketchRows; ++row) least = std::min(least, counter(hash, row));
  return least;
}

void ReplicaCache::note_outside(uint64_t hash) {
  const uint32_t before = uses_outside(hash);
  if (before == 255) return;
  for (size_t row = 0; row < kSketchRows; ++row) {
    uint8_t& count = counter(hash, row);
    if (count == before) ++count;
  }
}

void ReplicaCache::note_uses(size_t count) {
  since_decay_ += count;
  if (since_decay_ > kUsesToDecay * capacity_) decay();
}

void ReplicaCache::decay() {
  for (Slot& slot : slots_) slot.uses /= 2;
  for (uint8_t& count : sketch_) count /= 2;
  since_decay_ = 0;
}

uint32_t ReplicaCache::use(size_t table, int64_t key) {
  const uint32_t slot = find(table, key);
  if (slot == kNone) return kNone;
  ++slots_[slot].uses;
  slots_[slot].batch = batch_;
  return slot;
}

uint32_t ReplicaCache::victim() {
  uint32_t least = kNone;
  for (int looked = 0; looked < kVictims; ++looked) {
    random_ = mix64(random_);
    const uint32_t at = static_cast<uint32_t>(random_ % slots_.size());
    if (slots_[at].batch == batch_ || slots_[at].table == kFree) continue;
    if (least == kNone || slots_[at].uses < slots_[least].uses) least = at;
  }
  return least;
}

uint32_t ReplicaCache::take(size_t table, int64_t key) {
  const uint64_t hash = hash_of(table, key);
  note_outside(hash);
  const uint32_t uses = uses_outside(hash);
  uint32_t slot;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else if (slots_.size() < capacity_) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = victim();
    if (slot == kNone || slots_[slot].uses >= uses) return kNone;
    if (facts(slot).updates > 0) evicted_[slots_[slot].table].push_back(pending_of(slot));
    erase(slot);
  }
  try {
    insert(hash, slot);
  } catch (...) {
    free_.push_back(slot);
    throw;
  }
  std::memset(line(slot), 0, stride_);
  const RowHeader header{key, 0, 0};
  std::memcpy(line(slot), &header, sizeof(header));
  slots_[slot] = {key, static_cast<uint32_t>(table), uses, batch_};
  return slot;
}

float* ReplicaCache::weights(uint32_t slot) {
  return reinterpret_cast<float*>(line(slot) + sizeof(RowHeader));
}

float* ReplicaCache::state(uint32_t slot) {
  return reinterpret_cast<float*>(line(slot) + sizeof(RowHeader) + layout_.state_offset());
}

float* ReplicaCache::sum(uint32_t slot) {
  return reinterpret_cast<float*>(line(slot) + sum_offset_);
}

ReplicaCache::Facts& ReplicaCache::facts(uint32_t slot) {
  return *reinterpret_cast<Facts*>(line(slot) + facts_offset_);
}

PendingGradient ReplicaCache::pending_of(uint32_t slot) {
  Facts& of = facts(slot);
  float* const from = sum(slot);
  PendingGradient pending{slots_[slot].key, of.updates, of.lookups,
                          std::vector<float>(from, from + layout_.width)};
  std::fill_n(from, layout_.width, 0.0f);
  of.version += of.updates;
  of.updates = of.lookups = 0;
  return pending;
}

void ReplicaCache::push_all(size_t table, std::vector<PendingGradient>* pending) {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].table == table && facts(slot).updates > 0) {
      pending->push_back(pending_of(slot));
    }
  }
}

void ReplicaCache::clear(size_t table) {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].table != table) continue;
    erase(slot);
    free_.push_back(slot);
  }
  evicted_[table].clear();
}

void keep_together(const std::vector<Table*>& tables) {
  std::vector<Table*> left;
  for (Table* table : tables) {
    const StaleState* stale = table->stale();
    const bool own = stale != nullptr && stale->kept.use_count() == 1;
    if (own && stale->kept->size() == 0 && stale->kept->evicted(0).empty()) left.push_back(table);
  }
  while (left.size() > 1) {
    const LineLayout layout = left[0]->stale()->kept->layout();
    const auto end = std::stable_partition(left.begin(), left.end(), [&](const Table* table) {
      return alike(table->stale()->kept->layout(), layout);
    });
    const std::vector<Table*> group(left.begin(), end);
    left.erase(left.begin(), end);
    if (group.size() == 1) continue;
    size_t rows = 0;
    for (const Table* table : group) rows += table->stale()->kept->capacity();
    const auto kept = std::make_shared<ReplicaCache>(layout, rows, group.size());
    for (size_t number = 0; number < group.size(); ++number) {
      group[number]->stale()->kept = kept;
      group[number]->stale()->number = number;
    }
  }
}

}  // namespace hotrow
