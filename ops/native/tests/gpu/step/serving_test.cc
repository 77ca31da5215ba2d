// The serving cache: against a map, and lookups concurrent with updates.
#include "core/gpu/step/serving.h"

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
#include "tests/error_code.h"
#include "tests/gpu/device_array.h"

namespace hotrow {
namespace {

// Rows of a header and 60 words, in slots of 256 bytes.
struct Row {
  RowHeader header;
  uint32_t words[60];
};
static_assert(sizeof(Row) == 256);

Row row_of(int64_t key, uint32_t clock) {
  Row row;
  row.header = {key, clock, 0};
  for (uint32_t& word : row.words) word = static_cast<uint32_t>(key) * 1000003 + clock;
  return row;
}

bool whole(const Row& row, int64_t key) {
  const Row expected = row_of(key, row.header.clock);
  return std::memcmp(&row, &expected, sizeof(row)) == 0;
}

struct Cache {
  explicit Cache(size_t rows) {
    DeviceArena sizes;
    ServingCache::take(sizes, rows, sizeof(Row) - sizeof(RowHeader));
    memory = std::make_unique<DeviceArray<std::byte>>(sizes.used());
    DeviceArena arena(memory->data(), sizes.used());
    cache = ServingCache::take(arena, rows, sizeof(Row) - sizeof(RowHeader));
    device_serving_clear(cache, kStream);
    memory->read(1);
  }
  void update(ServingUpdate what, const std::vector<int64_t>& keys, uint32_t clock, uint8_t now) {
    put(what, keys, std::vector<uint32_t>(keys.size(), clock), ticket_of(what), now);
  }
  ServingTicket ticket_of(ServingUpdate what) {
    return what == ServingUpdate::kFill ? tickets.fetch() : tickets.change();
  }
  // clocks: (keys)
  void put(ServingUpdate what, const std::vector<int64_t>& keys,
           const std::vector<uint32_t>& clocks, ServingTicket ticket, uint8_t now = 1,
           DeviceStream stream = kStream) {
    std::vector<Row> rows;
    for (size_t i = 0; i < keys.size(); ++i) rows.push_back(row_of(keys[i], clocks[i]));
    const DeviceArray<int64_t> device_keys(keys);
    const DeviceArray<Row> device_rows(rows);
    const Scratch scratch(device_serving_update_scratch(keys.size()));
    device_serving_update(cache, what, device_keys.data(), keys.size(), now, ticket,
                          reinterpret_cast<std::byte*>(device_rows.data()), sizeof(Row),
                          scratch.data(), scratch.bytes(), stream);
    must(cudaStreamSynchronize(stream));
  }
  std::vector<Served> look_up(const std::vector<int64_t>& keys, uint8_t now,
                              std::vector<Row>* rows) {
    const DeviceArray<int64_t> device_keys(keys);
    const DeviceArray<Row> device_rows(keys.size());
    const DeviceArray<Served> served(keys.size());
    device_serving_lookup(cache, device_keys.data(), keys.size(), now,
                          reinterpret_cast<std::byte*>(device_rows.data()), sizeof(Row),
                          served.data(), kStream);
    *rows = device_rows.read();
    return served.read();
  }
  std::unique_ptr<DeviceArray<std::byte>> memory;
  ServingCache cache;
  ServingClock tickets;
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
    const auto what = static_cast<ServingUpdate>(step % 5 == 0 ? 2 : step % 3 == 0 ? 0 : 1);
    // Every seventh update is an old one that arrives late.
    const uint32_t clock = step % 7 == 0 ? step - 6 : step;
    cache.update(what, keys, clock, static_cast<uint8_t>(step));
    for (const int64_t key : keys) {
      if (what == ServingUpdate::kRemove) {
        expected.erase(key);
      } else if (expected.count(key) != 0) {
        expected[key] = std::max(expected[key], clock);
      } else if (what == ServingUpdate::kFill) {
        expected[key] = clock;
      }
    }
    std::vector<int64_t> asked{INT64_MIN, INT64_MAX, 7, 7, 7};
    for (int64_t key = -160; key < 160; ++key) asked.push_back(key);
    std::vector<Row> rows;
    const auto served = cache.look_up(asked, static_cast<uint8_t>(step), &rows);
    size_t wrong = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto at = expected.find(asked[i]);
      wrong += served[i] != (at == expected.end() ? Served::kMissing : Served::kFound);
      if (at == expected.end() || served[i] != Served::kFound) continue;
      wrong += !whole(rows[i], asked[i]) || rows[i].header.clock != at->second;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("device serving: what was not asked for longest is evicted") {
  Cache cache(32);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 32; ++key) keys.push_back(key);
  std::vector<Row> rows;
  cache.update(ServingUpdate::kFill, keys, 1, 250);
  cache.look_up({0,  1,  2,  3,  4,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
                3, &rows);  // all but 5, after the clock turned over
  cache.update(ServingUpdate::kFill, {100}, 1, 4);
  const auto served = cache.look_up({100, 5, 6}, 5, &rows);
  CHECK(served == std::vector<Served>{Served::kFound, Served::kMissing, Served::kFound});
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
      served_ = arena.take<Served>(count);
      scratch_ = arena.take<std::byte>(bytes);
      scratch_bytes_ = bytes;
    });
    take_from(pinned_, [&](DeviceArena& arena) {
      host_keys_ = arena.take<int64_t>(count);
      host_rows_ = arena.take<Row>(count);
      host_served_ = arena.take<Served>(count);
    });
  }
  void update(ServingUpdate what, const std::vector<int64_t>& keys, uint32_t clock) {
    send(keys);
    for (size_t i = 0; i < keys.size(); ++i) host_rows_[i] = row_of(keys[i], clock);
    copy_async(rows_, host_rows_, keys.size(), stream_.get());
    device_serving_update(cache_->cache, what, keys_, keys.size(), 1, cache_->ticket_of(what),
                          reinterpret_cast<std::byte*>(rows_), sizeof(Row), scratch_,
                          scratch_bytes_, stream_.get());
    must(cudaStreamSynchronize(stream_.get()));
  }
  // visit(i, row) for each key that was found. Returns how many were busy.
  template <typename Visit>
  size_t look_up(const std::vector<int64_t>& keys, Visit&& visit) {
    send(keys);
    device_serving_lookup(cache_->cache, keys_, keys.size(), 1, reinterpret_cast<std::byte*>(rows_),
                          sizeof(Row), served_, stream_.get());
    copy_async(host_rows_, rows_, keys.size(), stream_.get());
    copy_async(host_served_, served_, keys.size(), stream_.get());
    must(cudaStreamSynchronize(stream_.get()));
    size_t busy = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      busy += host_served_[i] == Served::kBusy;
      if (host_served_[i] == Served::kFound) visit(i, host_rows_[i]);
    }
    return busy;
  }

 private:
  void send(const std::vector<int64_t>& keys) {
    std::copy(keys.begin(), keys.end(), host_keys_);
    copy_async(keys_, host_keys_, keys.size(), stream_.get());
  }
  Cache* const cache_;
  DeviceBlock memory_;
  PinnedBlock pinned_;
  int64_t *keys_, *host_keys_;
  Row *rows_, *host_rows_;
  Served *served_, *host_served_;
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
      if (clock % 8 == 0) updates.update(ServingUpdate::kRemove, some, clock);
      updates.update(ServingUpdate::kFill, clock % 16 == 9 ? keys : some, clock);
    }
  });
  size_t torn = 0, found = 0, busy = 0, backwards = 0;
  std::vector<uint32_t> newest(keys.size(), 0);
  for (size_t round = 0; round < 150 * kScale || updated < 20; ++round) {
    busy += lookups.look_up(keys, [&](size_t i, const Row& row) {
      ++found;
      torn += !whole(row, keys[i]);
      backwards += row.header.clock < newest[i];
      newest[i] = row.header.clock;
    });
  }
  over = true;
  writer.join();
  MESSAGE(found, " rows found, ", busy, " busy, beside ", updated.load(), " updates");
  CHECK(torn == 0);
  CHECK(backwards == 0);
  CHECK(found > 1000);
}

#if defined(HOTROW_SIMT)
TEST_CASE("device serving: in a memory as weak as a GPU's, a row is whole or busy") {
  Cache cache(32);
  const std::vector<int64_t> keys{1, 2, 3};
  cache.update(ServingUpdate::kFill, {1, 2}, 1, 0);
  OnOwnStream updates(&cache, keys.size()), lookups(&cache, keys.size());
  size_t torn = 0, old = 0, found = 0, busy = 0;
  for (uint32_t clock = 2; clock < 2 + 40 * kScale; clock += 2) {
    simt::WeakMemory memory(clock);
    // Key 3 takes the place of key 1, which then takes another: so ways hold several keys.
    updates.update(ServingUpdate::kRemove, {clock % 4 == 0 ? 1 : 3}, clock);
    updates.update(ServingUpdate::kFill, {clock % 4 == 0 ? 3 : 1, 2}, clock);
    updates.update(ServingUpdate::kWrite, {2}, clock + 1);
    for (int i = 0; i < 20; ++i) {
      memory.beside();
      busy += lookups.look_up(keys, [&](size_t k, const Row& row) {
        ++found;
        torn += !whole(row, keys[k]);
        old += row.header.clock < clock;
      });
    }
  }
  MESSAGE(found, " rows found, of which ", old, " old ones, ", busy, " busy");
  CHECK(torn == 0);
  CHECK(found > 100);
  CHECK(old > 10);
}
#endif

TEST_CASE("device serving: a key of a set that keeps changing is busy, not waited for") {
  Cache cache(32);
  cache.update(ServingUpdate::kFill, {1, 2}, 1, 0);
  auto sets = read_device(cache.cache.sets, 1);
  for (int i = 0; i < 2; ++i) {
    ++sets[0].version;
    must(cudaMemcpyAsync(cache.cache.sets, sets.data(), sizeof(DeviceSet), cudaMemcpyDefault,
                         kStream));
    std::vector<Row> rows;
    const bool changing = sets[0].version % 2 == 1;
    const auto expected = [&](Served else_) { return changing ? Served::kBusy : else_; };
    CHECK(cache.look_up({1, 3}, 1, &rows) ==
          std::vector<Served>{expected(Served::kFound), expected(Served::kMissing)});
  }
}

TEST_CASE("device serving: a slow fetch never undoes a newer write, cached or not") {
  Cache cache(32);  // one set
  const auto fill = [&](int64_t key, uint32_t clock, ServingTicket ticket) {
    cache.put(ServingUpdate::kFill, {key}, {clock}, ticket);
  };
  const auto fetched = [&](int64_t key, uint32_t clock) {
    fill(key, clock, cache.tickets.fetch());
  };
  // The clock of a cached row; 0: it is not cached.
  const auto clock_of = [&](int64_t key) {
    std::vector<Row> rows;
    return cache.look_up({key}, 1, &rows)[0] == Served::kFound ? rows[0].header.clock : 0;
  };
  // Not cached: the fetch reads the store, the row is written, the fetch brings what it read.
  const ServingTicket before = cache.tickets.fetch();
  cache.update(ServingUpdate::kWrite, {1}, 7, 1);
  fill(1, 6, before);
  CHECK(clock_of(1) == 0);
  fetched(1, 7);
  CHECK(clock_of(1) == 7);
  // Cached: clocks are compared.
  cache.update(ServingUpdate::kWrite, {1}, 9, 1);
  fill(1, 8, before);
  fetched(1, 8);
  CHECK(clock_of(1) == 9);
  fetched(1, 10);
  CHECK(clock_of(1) == 10);
  // Removed while the fetch was on its way, cached and not.
  for (const int64_t key : {1, 2}) {
    const ServingTicket on_its_way = cache.tickets.fetch();
    cache.update(ServingUpdate::kRemove, {key}, 0, 1);
    fill(key, 10, on_its_way);
    CHECK(clock_of(key) == 0);
  }
  // Cached, written and evicted while the fetch was on its way.
  fetched(3, 1);
  const ServingTicket long_ago = cache.tickets.fetch();
  cache.update(ServingUpdate::kWrite, {3}, 2, 1);
  for (int64_t key = 100; clock_of(3) != 0 && key < 200; ++key) {
    cache.update(ServingUpdate::kFill, {key}, 1, 2);
  }
  REQUIRE(clock_of(3) == 0);
  fill(3, 1, long_ago);
  CHECK(clock_of(3) == 0);
}

TEST_CASE("device serving: a write refuses older fetches of its sets only") {
  Cache cache(3200);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 400; ++key) keys.push_back(key);
  const ServingTicket before = cache.tickets.fetch();
  cache.update(ServingUpdate::kWrite, {-1, -2, -3, -4, -5}, 2, 1);
  cache.put(ServingUpdate::kFill, keys, std::vector<uint32_t>(keys.size(), 1), before);
  std::vector<Row> rows;
  const auto served = cache.look_up(keys, 1, &rows);
  const auto found = std::count(served.begin(), served.end(), Served::kFound);
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
    std::vector<Row> rows;
    const auto served = cache_.look_up(keys, 1, &rows);
    std::vector<int64_t> missing;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (served[i] != Served::kFound) {
        missing.push_back(keys[i]);
        continue;
      }
      ++found;
      wrong += !whole(rows[i], keys[i]) || rows[i].header.clock < least[i];
    }
    const ServingTicket ticket = cache_.tickets.fetch();
    std::vector<uint32_t> clocks;
    for (const int64_t key : missing) clocks.push_back(stored_[static_cast<size_t>(key)]);
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    cache_.put(ServingUpdate::kFill, missing, clocks, ticket, static_cast<uint8_t>(seed),
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
  DeviceCache cache;
  cache.stride = 64;
  for (const size_t stride : {size_t{48}, size_t{72}}) {
    CHECK(error_code([&] {
            device_serving_lookup(cache, nullptr, 1, 0, nullptr, stride, nullptr, kStream);
          }) == Code::kInvalidArgument);
  }
}

}  // namespace hotrow
