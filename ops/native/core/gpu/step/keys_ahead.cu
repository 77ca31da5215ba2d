#include <utility>

#include "core/gpu/step/call.h"
#include "core/gpu/step/keys_ahead.h"

namespace hotrow {
namespace {

std::byte* room(DeviceBlock* block, size_t bytes) {
  block->reserve(bytes);
  return block->data();
}

void count_lookups(const CallKeys& from, size_t tables, DeviceBatchKeys* keys, DeviceBlock* scratch,
                   DeviceStream stream) {
  const size_t count = keys->count();
  keys->counted = take_from(keys->counted_memory, [&](DeviceArena& arena) {
    return DeviceLookups::take(arena, count, tables);
  });
  const size_t bytes = device_count_lookups_scratch(count);
  device_count_lookups(from.pieces, keys->unique.inverse, keys->unique.table_first, tables,
                       keys->counted, room(scratch, bytes), bytes, stream);
}

}  // namespace

void make_distinct(const DeviceKeys& in, size_t tables, DeviceBatchKeys* keys, DeviceBlock* scratch,
                   DeviceStream stream) {
  take_from(keys->memory, [&](DeviceArena& arena) {
    keys->unique = DeviceUnique::take(arena, in.count, in.tables);
    keys->probed = DeviceProbed::take(arena, in.count, tables);
  });
  const size_t bytes = device_unique_scratch(in.count);
  device_unique(in, keys->unique, room(scratch, bytes), bytes, stream);
}

std::vector<DeviceFeature> features_of(const LayerCall& call, const KeyPlaces& keys) {
  std::vector<DeviceFeature> features;
  for (size_t f = 0; f < call.features.size(); ++f) {
    const Table& table = *call.tables[call.table_of[f]];
    DeviceFeature feature;
    feature.segments = call.features[f].segments;
    feature.first_key = keys.first_key[f];
    feature.width = table.width();
    feature.weights = table.shape().layout.weights;
    feature.default_line = gpu_tier_of(table)->default_line();
    features.push_back(feature);
  }
  return features;
}

DeviceLookupKeys find_distinct(const LayerCall& call, const std::vector<float*>* pooled,
                               DeviceBatchKeys* keys, DeviceBlock* described, DeviceBlock* scratch,
                               DeviceStream stream) {
  const size_t tables = call.tables.size();
  keys->keys = KeyPlaces::of(call);
  keys->counted = {};
  DeviceLookupKeys lookup;
  lookup.keys = CallKeys::collect(call, keys->keys, described, stream, [&](DeviceDescribed* to) {
    lookup.caches = describe_caches(tiers_on_one_gpu(call.tables), to);
    if (pooled == nullptr) return;
    std::vector<DeviceFeature> features = features_of(call, keys->keys);
    for (size_t f = 0; f < features.size(); ++f) features[f].pooled = (*pooled)[f];
    lookup.pool = describe_pool(features.data(), features.size(), to);
  });
  const CallKeys& all = lookup.keys;
  make_distinct({all.keys, keys->count(), all.table_begins, tables}, tables, keys, scratch, stream);
  if (all.counted) count_lookups(all, tables, keys, scratch, stream);
  return lookup;
}

// --- the pool ------------------------------------------------------------------------------------

size_t DeviceKeysPool::Room::bytes() const {
  return keys.bytes() + described.bytes() + scratch.bytes();
}

size_t DeviceKeysPool::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const auto& room : free_) total += room->bytes();
  return total;
}

std::unique_ptr<DeviceKeysPool::Room> DeviceKeysPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Room> room = std::move(free_.back());
      free_.pop_back();
      return room;
    }
  }
  return std::make_unique<Room>();
}

void DeviceKeysPool::give_back(std::unique_ptr<Room> room) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(room));
}

// --- a call --------------------------------------------------------------------------------------

DeviceKeysAhead::DeviceKeysAhead(const LayerCall& call, const std::vector<float*>* pooled,
                                 DeviceStream stream)
    : pool_(&tiers_on_one_gpu(call.tables)[0]->keys_pool),
      here_(gpu_tier_of(*call.tables[0])->device()),
      stream_(stream),
      room_(pool_->take()) {
  room_->used.hold(stream);
  const std::vector<GpuTier*> tiers = tiers_on_one_gpu(call.tables);
  uses_ = uses_of(tiers);
  hold_slots(tiers, stream);
  room_->idle.record(stream);
  collected_ =
      find_distinct(call, pooled, &room_->keys, &room_->described, &room_->scratch, stream);
}

DeviceKeysAhead::~DeviceKeysAhead() {
  try {
    room_->used.record(stream_);
    pool_->give_back(std::move(room_));
  } catch (const std::exception&) {
    // The room is freed, which waits for the device.
  }
}

DeviceLookupKeys DeviceKeysAhead::give_to(DeviceBatchKeys* batch) {
  std::swap(*batch, room_->keys);
  return collected_;
}

}  // namespace hotrow
