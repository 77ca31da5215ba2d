// A serving cache on the device, its rows, and lookups that find them, for tests.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "core/gpu/kernels/runtime.h"
#include "core/gpu/serving/cache.h"
#include "core/gpu/serving/lookup.h"
#include "tests/gpu/device_array.h"

namespace hotrow::served {

inline constexpr uint32_t kServedWidth = 60;
inline constexpr ServedTable kTable{1, 0x1234};
inline constexpr uint64_t kSalts[] = {7, kTable.salt};

// A header and kServedWidth words, in slots of 256 bytes. Each word depends on key and version; the
// first one is the version.
struct Row {
  ServedHeader header;
  uint32_t words[kServedWidth];
};
static_assert(sizeof(Row) == 256);

inline Row row_of(int64_t key, uint32_t version) {
  Row row;
  row.header = {key, version};
  for (uint32_t& word : row.words) word = static_cast<uint32_t>(key) * 1000003 + version;
  row.words[0] = version;
  return row;
}

// What a lookup finds.
struct Found {
  uint32_t words[kServedWidth];
  uint32_t version() const { return words[0]; }
};
static_assert(sizeof(Found) == kServedWidth * sizeof(float));

inline bool whole(const Found& found, int64_t key) {
  return std::memcmp(found.words, row_of(key, found.version()).words, sizeof(found)) == 0;
}

inline ServedFeature feature_of(const ServingCache& cache, const int64_t* keys, Found* outputs) {
  ServedFeature feature{};
  feature.keys = keys;
  feature.outputs = reinterpret_cast<float*>(outputs);
  feature.cache = cache;
  feature.table = kTable;
  feature.width = kServedWidth;
  feature.combiner = Combiner::kNone;
  feature.type = StoredType::kFloat32;
  return feature;
}

struct Cache {
  explicit Cache(size_t rows, CachePolicy policy = CachePolicy::kLru) {
    constexpr size_t kRowBytes = sizeof(Row) - sizeof(ServedHeader);
    DeviceArena sizes;
    ServingCache::take(sizes, rows, kRowBytes, 2, policy);
    memory = std::make_unique<DeviceArray<std::byte>>(sizes.used());
    DeviceArena arena(memory->data(), sizes.used());
    cache = ServingCache::take(arena, rows, kRowBytes, 2, policy);
    device_serving_clear(cache, kSalts, 2, kStream);
    memory->read(1);
  }
  void update(ServingUpdate what, const std::vector<int64_t>& keys, uint32_t version, uint8_t now) {
    put(what, keys, std::vector<RowVersion>(keys.size(), version), ticket_of(what), now);
  }
  // Removes them as a cut does.
  void remove(const std::vector<int64_t>& keys, uint32_t version) {
    put(ServingUpdate::kWrite, keys, std::vector<RowVersion>(keys.size(), version | kTombstone),
        tickets.change());
  }
  ServingTicket ticket_of(ServingUpdate what) {
    return what == ServingUpdate::kFill ? tickets.fetch() : tickets.change();
  }
  // versions: (keys)
  void put(ServingUpdate what, const std::vector<int64_t>& keys,
           const std::vector<RowVersion>& versions, ServingTicket ticket, uint8_t now = 1,
           DeviceStream stream = kStream) {
    std::vector<Row> rows;
    for (size_t i = 0; i < keys.size(); ++i) {
      rows.push_back(row_of(keys[i], static_cast<uint32_t>(versions[i])));
      rows.back().header.version = versions[i];
    }
    const DeviceArray<int64_t> device_keys(keys);
    const DeviceArray<Row> device_rows(rows);
    const Scratch scratch(device_serving_update_scratch(keys.size()));
    device_serving_update(cache, kTable, what, device_keys.data(), keys.size(), now, ticket,
                          reinterpret_cast<std::byte*>(device_rows.data()), sizeof(Row),
                          scratch.data(), scratch.bytes(), stream);
    must(cudaStreamSynchronize(stream));
  }
  // Returns whether each key was found.
  std::vector<bool> look_up(const std::vector<int64_t>& keys, uint8_t now,
                            std::vector<Found>* rows) {
    const DeviceArray<int64_t> device_keys(keys);
    const DeviceArray<Found> device_rows(keys.size());
    const DeviceArray<ServedFeature> features(
        {feature_of(cache, device_keys.data(), device_rows.data())});
    const DeviceArray<uint8_t> left(std::vector<uint8_t>(keys.size(), 0));
    device_serving_lookup(features.data(), 1, keys.size(), nullptr, 0, 0, now, ++lookups,
                          left.data(), kStream);
    *rows = device_rows.read();
    std::vector<bool> found;
    for (const uint8_t is_left : left.read()) found.push_back(is_left == 0);
    return found;
  }
  ServingCounts counts() { return read_device(cache.counts, 1)[0]; }
  std::unique_ptr<DeviceArray<std::byte>> memory;
  ServingCache cache;
  ServingClock tickets;
  std::atomic<uint64_t> lookups{0};
};

}  // namespace hotrow::served
