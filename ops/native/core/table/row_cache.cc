#include "core/table/row_cache.h"

#include <algorithm>
#include <cstring>

#include "core/base/hash.h"
#include "core/base/status.h"

namespace hotrow {
namespace {

size_t set_count(size_t rows) {
  constexpr size_t partitions = size_t{1} << RowCache::kPartitionBits;
  // Slot numbers have 32 bits, and the last is kNone.
  constexpr size_t most = RowCache::kNone / RowCache::kWays / partitions * partitions;
  if (rows > most * RowCache::kWays) {
    fail(Code::kInvalidArgument, "a cache of %zu rows; at most %zu", rows, most * RowCache::kWays);
  }
  const size_t sets = (rows + RowCache::kWays - 1) / RowCache::kWays;
  return (std::max<size_t>(sets, 1) + partitions - 1) / partitions * partitions;
}

// A slot's clock of 8 bits ticks once every few uses of the set, so that 256 ticks are long.
uint8_t time_of(uint32_t uses) { return static_cast<uint8_t>(uses / 4); }

}  // namespace

RowCache::RowCache(size_t stride, size_t rows, CachePolicy policy)
    : stride_(stride), policy_(policy), sets_(set_count(rows)), lines_(slots() * stride) {}

void RowCache::note_use(uint64_t hash, uint32_t slot) {
  Set& set = sets_[set_of(hash)];
  ++set.uses;
  if (slot != kNone) {
    const uint32_t way = slot % kWays;
    set.used_at[way] = time_of(set.uses);
    if (set.frequencies[way] != 0xff) ++set.frequencies[way];
  } else {
    set.sketch.raise(hash, set.sketch.frequency(hash) + 1);
  }
  if (++set.since_decay < kUsesToDecay * kWays) return;
  set.since_decay = 0;
  for (uint8_t& frequency : set.frequencies) frequency /= 2;
  set.sketch.decay();
}

void RowCache::expect(uint64_t hash, uint32_t uses) {
  sets_[set_of(hash)].sketch.raise(hash, uses);
}

uint32_t RowCache::choose(uint64_t hash, Admit admit) const {
  const size_t number = set_of(hash);
  const Set& set = sets_[number];
  const uint32_t first = static_cast<uint32_t>(number) * kWays;
  const uint32_t open = set.match(0);
  if (open != 0) return first + static_cast<uint32_t>(__builtin_ctz(open));
  uint32_t victim = kNone, least = 0, longest = 0;
  for (uint32_t way = 0; way < kWays; ++way) {
    if ((set.states[way] & (kPins | kLoading)) != 0) continue;
    const uint32_t worth = policy_ == CachePolicy::kLfu ? set.frequencies[way] : 0;
    // Of equals, the least recently used one.
    const uint32_t idle = static_cast<uint8_t>(time_of(set.uses) - set.used_at[way]);
    if (victim != kNone && (worth > least || (worth == least && idle <= longest))) continue;
    victim = first + way;
    least = worth;
    longest = idle;
  }
  if (victim == kNone) return kNone;
  if (admit == Admit::kIfWorthMore && policy_ == CachePolicy::kLfu &&
      set.sketch.frequency(hash) <= least) {
    return kNone;
  }
  return victim;
}

void RowCache::put(uint32_t slot, uint64_t hash, int64_t key, uint32_t place) {
  Set& set = set_at(slot);
  const uint32_t way = slot % kWays;
  std::memcpy(line(slot), &key, sizeof(key));
  set.states[way] = 0;
  set.frequencies[way] = static_cast<uint8_t>(set.sketch.frequency(hash));
  set.used_at[way] = time_of(set.uses);
  set.places[way] = place;
  set.tags[way] = tag_of(hash);
}

void RowCache::put_loading(uint32_t slot, uint64_t hash, const RowHeader& header, uint32_t ticket) {
  put(slot, hash, header.key, ticket);
  std::memcpy(line(slot), &header, sizeof(header));
  set_at(slot).states[slot % kWays] |= kLoading;
}

void RowCache::open(uint32_t slot, uint32_t place) {
  Set& set = set_at(slot);
  set.states[slot % kWays] &= static_cast<uint8_t>(~kLoading);
  set.places[slot % kWays] = place;
}

void RowCache::release(uint32_t slot) {
  Set& set = set_at(slot);
  const uint32_t way = slot % kWays;
  if (set.tags[way] == 0) return;
  // The key's frequency stays in the sketch, in case the key occurs again.
  set.sketch.raise(mix64(static_cast<uint64_t>(header(slot).key)), set.frequencies[way]);
  set.tags[way] = 0;
  set.states[way] = 0;
}

void RowCache::clear() {
  for (uint32_t slot = 0; slot < slots(); ++slot) release(slot);
}

void RowCache::set_dirty(uint32_t slot, bool dirty) {
  uint8_t& state = set_at(slot).states[slot % kWays];
  state = static_cast<uint8_t>(dirty ? state | kDirty : state & ~kDirty);
}

void RowCache::unpin(const uint32_t* slots, size_t count, Pin who) {
  constexpr size_t kAhead = 16;
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) __builtin_prefetch(&set_at(slots[i + kAhead]), 1);
    set_at(slots[i]).states[slots[i] % kWays] &= static_cast<uint8_t>(~who);
  }
}

}  // namespace hotrow
