// The serving cache: lookups beside updates.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "core/gpu/serving/cache.h"
#include "tests/gpu/serving/served_rows.h"

namespace hotrow {

using namespace served;

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
    *host_feature_ = feature_of(cache_->cache, keys_, found_);
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

}  // namespace hotrow
