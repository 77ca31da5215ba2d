// The serving cache: against a map, and lookups concurrent with updates.
#include "core/gpu/serving/cache.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "core/gpu/kernels/runtime.h"
#include "core/gpu/serving/lookup.h"
#include "core/store/store_layout.h"
#include "tests/error_code.h"
#include "tests/gpu/device_array.h"

namespace hotrow {
namespace {

constexpr uint32_t kWidth = 60;
constexpr ServedTable kTable{1, 0x1234};
constexpr uint64_t kSalts[] = {7, kTable.salt};

// A header and kWidth words, in slots of 256 bytes. Each word depends on key and version; the first
// one is the version.
struct Row {
  ServedHeader header;
  uint32_t words[kWidth];
};
static_assert(sizeof(Row) == 256);

Row row_of(int64_t key, uint32_t version) {
  Row row;
  row.header = {key, version};
  for (uint32_t& word : row.words) word = static_cast<uint32_t>(key) * 1000003 + version;
  row.words[0] = version;
  return row;
}

// What a lookup finds.
struct Found {
  uint32_t words[kWidth];
  uint32_t version() const { return words[0]; }
};
static_assert(sizeof(Found) == kWidth * sizeof(float));

bool whole(const Found& found, int64_t key) {
  return std::memcmp(found.words, row_of(key, found.version()).words, sizeof(found)) == 0;
}

ServedFeature feature_of(const ServingCache& cache, const int64_t* keys, size_t count,
                         Found* outputs) {
  ServedFeature feature{};
  feature.keys = keys;
  feature.outputs = reinterpret_cast<float*>(outputs);
  feature.cache = cache;
  feature.table = kTable;
  feature.count = static_cast<uint32_t>(count);
  feature.width = kWidth;
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
        {feature_of(cache, device_keys.data(), keys.size(), device_rows.data())});
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

}  // namespace

TEST_CASE("device serving: rows are those of a map, old rows do not undo new ones") {
  Cache cache(2000);
  std::map<int64_t, uint32_t> expected;
  std::mt19937 random(1);
  for (uint32_t step = 1; step <= 30; ++step) {
    std::map<int64_t, bool> drawn;
    for (size_t i = 0; i < 60; ++i) drawn[static_cast<int64_t>(random() % 300) - 150] = true;
    if (step == 4) drawn[INT64_MIN] = drawn[INT64_MAX] = true;
    std::vector<int64_t> keys;
    for (const auto& [key, is] : drawn) keys.push_back(key);
    std::shuffle(keys.begin(), keys.end(), random);
    const bool removes = step % 5 == 0, fills = step % 3 != 0;
    // Every seventh update is an old one that arrives late.
    const uint32_t version = step % 7 == 0 ? step - 6 : step;
    if (removes) {
      cache.remove(keys, version);
    } else {
      cache.update(fills ? ServingUpdate::kFill : ServingUpdate::kWrite, keys, version,
                   static_cast<uint8_t>(step));
    }
    for (const int64_t key : keys) {
      const auto cached = expected.find(key);
      if (removes && cached != expected.end()) {
        if (version > cached->second) expected.erase(cached);
      } else if (removes) {
        continue;
      } else if (cached != expected.end()) {
        cached->second = std::max(cached->second, version);
      } else if (fills) {
        expected[key] = version;
      }
    }
    std::vector<int64_t> asked{INT64_MIN, INT64_MAX, 7, 7, 7};
    for (int64_t key = -160; key < 160; ++key) asked.push_back(key);
    std::vector<Found> rows;
    const auto found = cache.look_up(asked, static_cast<uint8_t>(step), &rows);
    size_t wrong = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto at = expected.find(asked[i]);
      wrong += found[i] != (at != expected.end());
      if (at == expected.end() || !found[i]) continue;
      wrong += !whole(rows[i], asked[i]) || rows[i].version() != at->second;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("device serving: what was not asked for longest is evicted") {
  Cache cache(32);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 32; ++key) keys.push_back(key);
  std::vector<Found> rows;
  cache.update(ServingUpdate::kFill, keys, 1, 250);
  cache.look_up({0,  1,  2,  3,  4,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
                3, &rows);  // all but 5, after the clock turned over
  cache.update(ServingUpdate::kFill, {100}, 1, 4);
  CHECK(cache.look_up({100, 5, 6}, 5, &rows) == std::vector<bool>{true, false, true});
}

TEST_CASE("device serving: LFU keeps what is used most, and lets a new row in that is used more") {
  Cache cache(32, CachePolicy::kLfu);
  std::vector<int64_t> keys(32);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<Found> rows;
  cache.update(ServingUpdate::kFill, keys, 1, 0);
  // All but 5 are used several times.
  std::vector<int64_t> used = keys;
  used.erase(used.begin() + 5);
  for (int i = 0; i < 6; ++i) cache.look_up(used, 0, &rows);
  const auto is_cached = [&](int64_t key) -> bool { return cache.look_up({key}, 0, &rows)[0]; };
  CHECK(cache.counts().inserted == 32);
  // Asked for twice: more often than 5, less often than the others.
  for (int i = 0; i < 4 && !is_cached(100); ++i) {
    cache.update(ServingUpdate::kFill, {100}, 1, 0);
  }
  CHECK(is_cached(100));
  CHECK(!is_cached(5));
  cache.update(ServingUpdate::kFill, {200}, 1, 0);
  CHECK(!is_cached(200));
  CHECK(cache.counts().evicted == 1);
  CHECK(cache.counts().refused >= 1);
  // Asked for again and again, it comes in at last: the frequencies of the others are halved.
  size_t asked = 0;
  while (!is_cached(200) && asked < 2000) {
    ++asked;
    cache.update(ServingUpdate::kFill, {200}, 1, 0);
  }
  CHECK(is_cached(200));
}

TEST_CASE("device serving: keys of two tables of a cache are apart") {
  Cache cache(64);
  std::vector<Found> rows;
  cache.update(ServingUpdate::kFill, {1, 2}, 3, 0);
  const DeviceArray<int64_t> keys({1, 2});
  const DeviceArray<Found> outputs(2);
  for (const ServedTable other : {ServedTable{0, kSalts[0]}, ServedTable{0, kTable.salt}}) {
    ServedFeature feature = feature_of(cache.cache, keys.data(), 2, outputs.data());
    feature.table = other;
    const DeviceArray<ServedFeature> features({feature});
    const DeviceArray<uint8_t> left(std::vector<uint8_t>(2, 0));
    device_serving_lookup(features.data(), 1, 2, nullptr, 0, 0, 0, 1, left.data(), kStream);
    CHECK(left.read() == std::vector<uint8_t>{1, 1});
  }
}

TEST_CASE("device serving: a row newer than a session's cut, or in a layer of it, is not read") {
  Cache cache(64);
  cache.update(ServingUpdate::kFill, {1, 2}, 3, 0);
  cache.update(ServingUpdate::kFill, {4}, 5, 0);
  const DeviceArray<int64_t> keys({1, 2, 4});
  const DeviceArray<Found> outputs(3);
  ServedFeature feature = feature_of(cache.cache, keys.data(), 3, outputs.data());
  feature.table_in_all = 6;
  const DeviceArray<ServedFeature> features({feature});
  // Key 2 of table 6 and key 1 of table 5.
  std::vector<LayerKeys::Slot> slots(8, LayerKeys::Slot{0, 0, 0});
  const auto add = [&](int64_t key, uint32_t table) {
    size_t at = LayerKeys::home(key, table) & 7;
    while (slots[at].table != 0) at = (at + 1) & 7;
    slots[at] = {key, table + 1, 0};
  };
  add(2, 6), add(1, 5);
  const DeviceArray<LayerKeys::Slot> on_device(slots);
  const DeviceArray<LayerKeys> layers({LayerKeys{on_device.data(), 7}});
  const auto left_of = [&](size_t layer_count, RowVersion newest) {
    const DeviceArray<uint8_t> left(std::vector<uint8_t>(3, 0));
    device_serving_lookup(features.data(), 1, 3, layers.data(), layer_count, newest, 0, 1,
                          left.data(), kStream);
    return left.read();
  };
  CHECK(left_of(0, 0) == std::vector<uint8_t>{0, 0, 0});
  CHECK(left_of(0, 5) == std::vector<uint8_t>{0, 0, 0});
  CHECK(left_of(0, 4) == std::vector<uint8_t>{0, 0, 1});
  CHECK(left_of(1, 0) == std::vector<uint8_t>{0, 1, 0});
}

TEST_CASE("device serving: a shard is removed, or all rows") {
  Cache cache(3200);
  std::vector<int64_t> keys(200);
  std::iota(keys.begin(), keys.end(), -100);
  cache.update(ServingUpdate::kFill, keys, 1, 0);
  std::vector<Found> rows;
  const ServingTicket before = cache.tickets.fetch();
  device_serving_remove(cache.cache, 2, 4, cache.tickets.change(), kStream);
  const auto found = cache.look_up(keys, 0, &rows);
  size_t removed = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool of_shard = store_shard_of(keys[i], 4) == 2;
    CHECK(found[i] == !of_shard);
    removed += of_shard;
  }
  CHECK(cache.counts().removed == removed);
  // A fetch from before brings nothing back.
  cache.put(ServingUpdate::kFill, keys, std::vector<RowVersion>(keys.size(), 2), before);
  CHECK(cache.look_up(keys, 0, &rows) == found);
  device_serving_remove(cache.cache, 0, 1, cache.tickets.change(), kStream);
  CHECK(cache.look_up(keys, 0, &rows) == std::vector<bool>(keys.size(), false));
}

namespace {

// Lookups or updates of up to `count` keys on a stream of their own. All memory is there before the
// first: allocating it may wait for the device, and then nothing would run beside it.
class OnOwnStream {
 public:
  OnOwnStream(Cache* cache, size_t count) : cache_(cache) {
    const size_t bytes = device_serving_update_scratch(count);
    take_from(memory_, [&](DeviceArena& arena) {
      keys_ = arena.take<int64_t>(count);
      rows_ = arena.take<Row>(count);
      found_ = arena.take<Found>(count);
      feature_ = arena.take<ServedFeature>(1);
      left_ = arena.take<uint8_t>(count);
      scratch_ = arena.take<std::byte>(bytes);
      scratch_bytes_ = bytes;
    });
    take_from(pinned_, [&](DeviceArena& arena) {
      host_keys_ = arena.take<int64_t>(count);
      host_rows_ = arena.take<Row>(count);
      host_found_ = arena.take<Found>(count);
      host_feature_ = arena.take<ServedFeature>(1);
      host_left_ = arena.take<uint8_t>(count);
    });
  }
  void update(ServingUpdate what, const std::vector<int64_t>& keys, uint32_t version) {
    send(keys);
    for (size_t i = 0; i < keys.size(); ++i) host_rows_[i] = row_of(keys[i], version);
    put(what, keys);
  }
  void remove(const std::vector<int64_t>& keys, uint32_t version) {
    send(keys);
    for (size_t i = 0; i < keys.size(); ++i) {
      host_rows_[i] = row_of(keys[i], version);
      host_rows_[i].header.version |= kTombstone;
    }
    put(ServingUpdate::kWrite, keys);
  }
  // visit(i, row) for each key that was found. Returns how many were not.
  template <typename Visit>
  size_t look_up(const std::vector<int64_t>& keys, Visit&& visit) {
    send(keys);
    *host_feature_ = feature_of(cache_->cache, keys_, keys.size(), found_);
    copy_async(feature_, host_feature_, 1, stream_.get());
    must(cudaMemsetAsync(left_, 0, keys.size(), stream_.get()));
    device_serving_lookup(feature_, 1, keys.size(), nullptr, 0, 0, 1, ++cache_->lookups, left_,
                          stream_.get());
    copy_async(host_found_, found_, keys.size(), stream_.get());
    copy_async(host_left_, left_, keys.size(), stream_.get());
    must(cudaStreamSynchronize(stream_.get()));
    size_t left = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      left += host_left_[i];
      if (host_left_[i] == 0) visit(i, host_found_[i]);
    }
    return left;
  }

 private:
  void put(ServingUpdate what, const std::vector<int64_t>& keys) {
    copy_async(rows_, host_rows_, keys.size(), stream_.get());
    device_serving_update(cache_->cache, kTable, what, keys_, keys.size(), 1,
                          cache_->ticket_of(what), reinterpret_cast<std::byte*>(rows_), sizeof(Row),
                          scratch_, scratch_bytes_, stream_.get());
    must(cudaStreamSynchronize(stream_.get()));
  }
  void send(const std::vector<int64_t>& keys) {
    std::copy(keys.begin(), keys.end(), host_keys_);
    copy_async(keys_, host_keys_, keys.size(), stream_.get());
  }
  Cache* const cache_;
  DeviceBlock memory_;
  PinnedBlock pinned_;
  int64_t *keys_, *host_keys_;
  Row *rows_, *host_rows_;
  Found *found_, *host_found_;
  ServedFeature *feature_, *host_feature_;
  uint8_t *left_, *host_left_;
  std::byte* scratch_;
  size_t scratch_bytes_;
  const OwnStream stream_;
};

}  // namespace

TEST_CASE("device serving: lookups beside updates see no torn row and do not wait") {
  Cache cache(64);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 40; ++key) keys.push_back(key);
  cache.update(ServingUpdate::kFill, keys, 1, 0);
  OnOwnStream updates(&cache, keys.size()), lookups(&cache, keys.size());
  std::atomic<bool> over{false};
  std::atomic<uint32_t> updated{0};
  std::thread writer([&] {
    for (uint32_t clock = 2; !over; ++clock, ++updated) {
      // Rows that come back may take the place of others.
      const std::vector<int64_t> some(keys.begin() + clock % 30, keys.begin() + clock % 30 + 6);
      if (clock % 8 == 0) updates.remove(some, clock);
      updates.update(ServingUpdate::kFill, clock % 16 == 9 ? keys : some, clock);
    }
  });
  size_t torn = 0, found = 0, busy = 0, backwards = 0;
  std::vector<uint32_t> newest(keys.size(), 0);
  for (size_t round = 0; round < 150 * kScale || updated < 20; ++round) {
    busy += lookups.look_up(keys, [&](size_t i, const Found& row) {
      ++found;
      torn += !whole(row, keys[i]);
      backwards += row.version() < newest[i];
      newest[i] = row.version();
    });
  }
  over = true;
  writer.join();
  MESSAGE(found, " rows found, ", busy, " not, beside ", updated.load(), " updates");
  CHECK(torn == 0);
  CHECK(backwards == 0);
  CHECK(found > 1000);
}

#if defined(HOTROW_SIMT)
TEST_CASE("device serving: in a memory as weak as a GPU's, a row is whole or not found") {
  Cache cache(32);
  const std::vector<int64_t> keys{1, 2, 3};
  cache.update(ServingUpdate::kFill, {1, 2}, 1, 0);
  OnOwnStream updates(&cache, keys.size()), lookups(&cache, keys.size());
  size_t torn = 0, old = 0, found = 0, busy = 0;
  for (uint32_t clock = 2; clock < 2 + 40 * kScale; clock += 2) {
    simt::WeakMemory memory(clock);
    // Key 3 takes the place of key 1, which then takes another: so ways hold several keys.
    updates.remove({clock % 4 == 0 ? 1 : 3}, clock);
    updates.update(ServingUpdate::kFill, {clock % 4 == 0 ? 3 : 1, 2}, clock);
    updates.update(ServingUpdate::kWrite, {2}, clock + 1);
    for (int i = 0; i < 20; ++i) {
      memory.beside();
      busy += lookups.look_up(keys, [&](size_t k, const Found& row) {
        ++found;
        torn += !whole(row, keys[k]);
        old += row.version() < clock;
      });
    }
  }
  MESSAGE(found, " rows found, of which ", old, " old ones, ", busy, " not found");
  CHECK(torn == 0);
  CHECK(found > 100);
  CHECK(old > 10);
}
#endif

TEST_CASE("device serving: a key of a set that keeps changing is missing, not waited for") {
  Cache cache(32);
  cache.update(ServingUpdate::kFill, {1, 2}, 1, 0);
  auto sets = read_device(cache.cache.sets, 1);
  for (const bool changing : {true, false}) {
    ++sets[0].version;
    must(cudaMemcpyAsync(cache.cache.sets, sets.data(), sizeof(DeviceSet), cudaMemcpyDefault,
                         kStream));
    std::vector<Found> rows;
    CHECK(cache.look_up({1, 3}, 1, &rows) == std::vector<bool>{!changing, false});
  }
}

TEST_CASE("device serving: a slow fetch never undoes a newer write, cached or not") {
  Cache cache(32);  // one set
  const auto fill = [&](int64_t key, uint32_t version, ServingTicket ticket) {
    cache.put(ServingUpdate::kFill, {key}, {version}, ticket);
  };
  const auto fetched = [&](int64_t key, uint32_t version) {
    fill(key, version, cache.tickets.fetch());
  };
  // The version of a cached row; 0: it is not cached.
  const auto version_of = [&](int64_t key) {
    std::vector<Found> rows;
    return cache.look_up({key}, 1, &rows)[0] ? rows[0].version() : 0;
  };
  // Not cached: the fetch reads the store, the row is written, the fetch brings what it read.
  const ServingTicket before = cache.tickets.fetch();
  cache.update(ServingUpdate::kWrite, {1}, 7, 1);
  fill(1, 6, before);
  CHECK(version_of(1) == 0);
  fetched(1, 7);
  CHECK(version_of(1) == 7);
  // Cached: versions are compared.
  cache.update(ServingUpdate::kWrite, {1}, 9, 1);
  fill(1, 8, before);
  fetched(1, 8);
  CHECK(version_of(1) == 9);
  fetched(1, 10);
  CHECK(version_of(1) == 10);
  // Removed while the fetch was on its way, cached and not.
  for (const int64_t key : {1, 2}) {
    const ServingTicket on_its_way = cache.tickets.fetch();
    cache.remove({key}, 20);
    fill(key, 10, on_its_way);
    CHECK(version_of(key) == 0);
  }
  // Cached, written and evicted while the fetch was on its way.
  fetched(3, 1);
  const ServingTicket long_ago = cache.tickets.fetch();
  cache.update(ServingUpdate::kWrite, {3}, 2, 1);
  for (int64_t key = 100; version_of(3) != 0 && key < 200; ++key) {
    cache.update(ServingUpdate::kFill, {key}, 1, 2);
  }
  REQUIRE(version_of(3) == 0);
  fill(3, 1, long_ago);
  CHECK(version_of(3) == 0);
}

TEST_CASE("device serving: a write refuses older fetches of its sets only") {
  Cache cache(3200);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 400; ++key) keys.push_back(key);
  const ServingTicket before = cache.tickets.fetch();
  cache.update(ServingUpdate::kWrite, {-1, -2, -3, -4, -5}, 2, 1);
  cache.put(ServingUpdate::kFill, keys, std::vector<RowVersion>(keys.size(), 1), before);
  std::vector<Found> rows;
  const auto served = cache.look_up(keys, 1, &rows);
  const auto found = std::count(served.begin(), served.end(), true);
  CHECK(found < 400);
  CHECK(found > 350);
}

namespace {

// A store, a cache before it, and threads that write and read: no lookup may find an older row than
// a write that had returned.
class CachedStore {
 public:
  static constexpr size_t kKeys = 100;

  // Writes random keys of those with key % writers == writer.
  void write(size_t writer, size_t writers, size_t times) {
    std::mt19937_64 random(writer);
    for (size_t i = 0; i < times; ++i) {
      const size_t key = random() % (kKeys / writers) * writers + writer;
      const uint32_t clock = stored_[key] + 1;
      stored_[key] = clock;  // first the store, then the cache
      cache_.put(ServingUpdate::kWrite, {static_cast<int64_t>(key)}, {clock},
                 cache_.tickets.change(), 1, updates_.get());
      announced_[key] = clock;
      // Fills need a moment without writes of their set.
      if (i % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Looks random keys up, and fetches those that are not cached, perhaps slowly.
  void read(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<int64_t> keys(kKeys);
    std::iota(keys.begin(), keys.end(), 0);
    std::shuffle(keys.begin(), keys.end(), random);
    keys.resize(24);
    std::vector<uint32_t> least;
    for (const int64_t key : keys) least.push_back(announced_[static_cast<size_t>(key)]);
    std::vector<Found> rows;
    const auto served = cache_.look_up(keys, 1, &rows);
    std::vector<int64_t> missing;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!served[i]) {
        missing.push_back(keys[i]);
        continue;
      }
      ++found;
      wrong += !whole(rows[i], keys[i]) || rows[i].version() < least[i];
    }
    const ServingTicket ticket = cache_.tickets.fetch();
    std::vector<RowVersion> versions;
    for (const int64_t key : missing) versions.push_back(stored_[static_cast<size_t>(key)]);
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    cache_.put(ServingUpdate::kFill, missing, versions, ticket, static_cast<uint8_t>(seed),
               updates_.get());
  }

  std::atomic<size_t> found{0}, wrong{0};

 private:
  Cache cache_{64};
  const OwnStream updates_;
  std::array<std::atomic<uint32_t>, kKeys> stored_{}, announced_{};
};

}  // namespace

TEST_CASE("device serving: readers beside writers find no older row than a write that returned") {
  CachedStore store;
  std::atomic<size_t> writing{2};
  std::vector<std::thread> threads;
  for (size_t w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      store.write(w, 2, 100 * kScale);
      --writing;
    });
  }
  for (uint64_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      for (uint64_t seed = r; writing > 0; seed += 2) store.read(seed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  MESSAGE(store.found.load(), " rows found");
  CHECK(store.wrong == 0);
  CHECK(store.found > 100);
}

TEST_CASE("device serving: rows of the wrong size are refused") {
  ServingCache cache;
  cache.stride = 64;
  for (const size_t stride : {size_t{48}, size_t{72}}) {
    CHECK(error_code([&] {
            device_serving_update(cache, kTable, ServingUpdate::kFill, nullptr, 1, 0, 0, nullptr,
                                  stride, nullptr, 0, kStream);
          }) == Code::kInvalidArgument);
  }
}

}  // namespace hotrow
