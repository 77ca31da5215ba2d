// A model of gpu/kernels/cache.h on the CPU, as plain as possible: batch after batch.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "core/base/hash.h"
#include "core/gpu/kernels/cache.h"

namespace hotrow {

class CacheModel {
 public:
  CacheModel(size_t sets, CachePolicy policy)
      : policy_(policy), sets_(sets), keys_(sets * kDeviceWays) {
    if (sets > 0) std::memset(sets_.data(), 0, sets * sizeof(DeviceSet));
  }

  static uint64_t hash_of(int64_t key) { return mix64(static_cast<uint64_t>(key)); }

  // Slots of distinct keys, or kNoSlot.
  std::vector<uint32_t> probe(const std::vector<int64_t>& keys, DeviceLookup how) {
    std::vector<uint32_t> slots, uses(sets_.size(), 0);
    for (const int64_t key : keys) {
      DeviceSet& set = sets_[set_of(key)];
      ++uses[set_of(key)];
      const uint32_t slot = find(key);
      slots.push_back(slot);
      if (slot == kNoSlot || how == DeviceLookup::kRead) continue;
      const uint32_t way = slot % kDeviceWays;
      if ((set.states[way] & 127) != 127) ++set.states[way];
      if (how != DeviceLookup::kTrain) continue;
      set.states[way] |= 128;
      if (set.frequencies[way] != 255) ++set.frequencies[way];
      set.used_at[way] = static_cast<uint8_t>(set.uses / 8);
    }
    for (size_t s = 0; how == DeviceLookup::kTrain && s < sets_.size(); ++s) {
      DeviceSet& set = sets_[s];
      set.uses += uses[s];
      set.since_decay += uses[s];
      while (set.since_decay >= 24 * kDeviceWays) {
        set.since_decay -= 24 * kDeviceWays;
        for (uint8_t& frequency : set.frequencies) frequency /= 2;
        for (uint32_t c = 0; c < kSketchWords * 16; ++c) write(set, c, read(set, c) / 2);
      }
    }
    return slots;
  }

  struct Victim {
    uint32_t slot, place;
    int64_t key;
    bool operator==(const Victim& other) const {
      return slot == other.slot && place == other.place && key == other.key;
    }
  };

  // Slots of missing keys, or kNoSlot; dirty rows that were evicted.
  std::vector<uint32_t> insert(const std::vector<int64_t>& keys,
                               const std::vector<uint32_t>& places, DeviceLookup how, bool always,
                               std::vector<Victim>* victims, uint32_t* evicted) {
    if (how == DeviceLookup::kTrain) {
      for (const int64_t key : keys) raise(key, known(key) + 1);
    }
    std::vector<uint32_t> slots;
    for (size_t i = 0; i < keys.size(); ++i) {
      slots.push_back(places[i] == kNoSlot ? kNoSlot : choose(keys[i], always));
      if (slots.back() == kNoSlot) continue;
      const uint32_t slot = slots.back(), way = slot % kDeviceWays;
      DeviceSet& set = sets_[slot / kDeviceWays];
      if (set.tags[way] != 0) {
        ++*evicted;
        if ((set.states[way] & 128) != 0) victims->push_back({slot, set.places[way], keys_[slot]});
        raise(keys_[slot], set.frequencies[way]);
      }
      set.tags[way] = tag_of(keys[i]);
      set.states[way] = how == DeviceLookup::kTrain ? 129 : 1;
      set.frequencies[way] = static_cast<uint8_t>(known(keys[i]));
      set.used_at[way] = static_cast<uint8_t>(set.uses / 8);
      set.places[way] = places[i];
      keys_[slot] = keys[i];
    }
    return slots;
  }

  void unpin(const std::vector<uint32_t>& slots) {
    for (const uint32_t slot : slots) {
      if (slot == kNoSlot) continue;
      uint8_t& state = sets_[slot / kDeviceWays].states[slot % kDeviceWays];
      if ((state & 127) != 0 && (state & 127) != 127) --state;
    }
  }
  void clean() {
    for (DeviceSet& set : sets_) {
      for (uint8_t& state : set.states) state &= 127;
    }
  }
  void drop(int64_t key) {
    const uint32_t slot = find(key);
    if (slot == kNoSlot) return;
    sets_[slot / kDeviceWays].tags[slot % kDeviceWays] = 0;
    sets_[slot / kDeviceWays].states[slot % kDeviceWays] = 0;
  }
  uint32_t find(int64_t key) const {
    const size_t s = set_of(key);
    for (uint32_t way = 0; way < kDeviceWays; ++way) {
      const uint32_t slot = static_cast<uint32_t>(s) * kDeviceWays + way;
      if (sets_[s].tags[way] != 0 && keys_[slot] == key) return slot;
    }
    return kNoSlot;
  }
  // Sets that differ.
  size_t differences(const std::vector<DeviceSet>& got) const {
    size_t wrong = 0;
    for (size_t s = 0; s < sets_.size(); ++s) {
      wrong += std::memcmp(&got[s], &sets_[s], sizeof(DeviceSet)) != 0;
    }
    return wrong;
  }

 private:
  size_t set_of(int64_t key) const {
    return static_cast<size_t>((static_cast<unsigned __int128>(hash_of(key)) * sets_.size()) >> 64);
  }
  static uint8_t tag_of(int64_t key) {
    const auto tag = static_cast<uint8_t>(hash_of(key) >> 8);
    return tag == 0 ? 1 : tag;
  }
  static uint32_t read(const DeviceSet& set, uint32_t c) {
    return static_cast<uint32_t>(set.sketch[c / 16] >> (c % 16 * 4)) & 15;
  }
  static void write(DeviceSet& set, uint32_t c, uint64_t count) {
    const uint32_t shift = c % 16 * 4;
    set.sketch[c / 16] = (set.sketch[c / 16] & ~(uint64_t{15} << shift)) | count << shift;
  }
  static uint32_t counter(int64_t key, int row) {
    const uint64_t half = mix64(hash_of(key)) >> (32 * row) & 0xffffffffu;
    return static_cast<uint32_t>(half * (kSketchWords * 16) >> 32);
  }
  uint32_t known(int64_t key) const {
    const DeviceSet& set = sets_[set_of(key)];
    return std::min(read(set, counter(key, 0)), read(set, counter(key, 1)));
  }
  void raise(int64_t key, uint32_t count) {
    DeviceSet& set = sets_[set_of(key)];
    for (int row = 0; row < 2; ++row) {
      const uint32_t c = counter(key, row);
      write(set, c, std::max(read(set, c), std::min(count, 15u)));
    }
  }
  uint32_t choose(int64_t key, bool always) const {
    const size_t s = set_of(key);
    const DeviceSet& set = sets_[s];
    const uint32_t first = static_cast<uint32_t>(s) * kDeviceWays;
    for (uint32_t way = 0; way < kDeviceWays; ++way) {
      if (set.tags[way] == 0) return first + way;
    }
    uint32_t victim = kNoSlot, least = 0;
    uint8_t longest = 0;
    for (uint32_t way = 0; way < kDeviceWays; ++way) {
      if ((set.states[way] & 127) != 0) continue;
      const uint32_t worth = policy_ == CachePolicy::kLfu ? set.frequencies[way] : 0;
      const auto idle = static_cast<uint8_t>(set.uses / 8 - set.used_at[way]);
      if (victim != kNoSlot && (worth > least || (worth == least && idle <= longest))) continue;
      victim = first + way;
      least = worth;
      longest = idle;
    }
    if (victim == kNoSlot) return kNoSlot;
    const bool wanted = policy_ == CachePolicy::kLru || always || known(key) > least;
    return wanted ? victim : kNoSlot;
  }

  CachePolicy policy_;
  std::vector<DeviceSet> sets_;
  std::vector<int64_t> keys_;
};

}  // namespace hotrow
