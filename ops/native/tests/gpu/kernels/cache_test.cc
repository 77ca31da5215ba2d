// The device's cache against a plain model of it, and tables through it against tables without one.
#include "core/gpu/kernels/cache.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "core/gpu/kernels/lines.h"
#include "core/gpu/kernels/update.h"
#include "core/table/row_cache.h"
#include "core/table/row_place.h"
#include "tests/error_code.h"
#include "tests/gpu/cache_model.h"
#include "tests/gpu/device_array.h"

namespace hotrow {
namespace {

constexpr size_t kWidth = 5;  // rows of 36 bytes in slots of 48

constexpr size_t kRowBytes = sizeof(RowHeader) + kWidth * sizeof(float);
constexpr size_t kBypassStride = 48;
constexpr size_t kMostRows = 30000;

// A table: its cache on the device, the model of it, and the host tier, by place.
struct Table {
  Table(size_t rows, CachePolicy policy) : model((rows + kDeviceWays - 1) / kDeviceWays, policy) {
    host.reserve(kMostRows);
    void* there = nullptr;
    must(cudaHostRegister(host.data(), kMostRows * sizeof(Row), cudaHostRegisterMapped));
    must(cudaHostGetDevicePointer(&there, host.data(), 0));
    blocks.write(std::vector<std::byte*>(blocks.size(), static_cast<std::byte*>(there)));
    written_back.write({0});
    DeviceArena sizes;
    DeviceCache::take(sizes, rows, kWidth * sizeof(float), policy);
    memory = std::make_unique<DeviceArray<std::byte>>(sizes.used());
    DeviceArena arena(memory->data(), sizes.used());
    cache = DeviceCache::take(arena, rows, kWidth * sizeof(float), policy);
    device_cache_clear(cache, kStream);
  }
  ~Table() { must(cudaHostUnregister(host.data())); }
  Table(const Table&) = delete;

  // All partitions have all places, in one block.
  DeviceHostRows host_rows() const {
    DeviceHostRows rows;
    rows.blocks = blocks.data();
    rows.written_back = written_back.data();
    rows.most_blocks = 1;
    rows.first_shift = 20;
    rows.stride = sizeof(Row);
    rows.row_bytes = kRowBytes;
    return rows;
  }
  std::unique_ptr<DeviceArray<std::byte>> memory;
  DeviceCache cache;
  CacheModel model;
  struct Row {
    RowHeader header;
    float weights[kWidth];
  };
  std::vector<Row> host;
  DeviceArray<std::byte*> blocks{size_t{1} << kPartitionBits};
  DeviceArray<uint64_t> written_back{1};
  std::map<int64_t, uint32_t> places;
  std::map<int64_t, int> updates;  // the expected updates of every row
};

// Runs batches of distinct keys through tables' caches as training does.
class Trainer {
 public:
  Trainer(std::vector<size_t> rows, CachePolicy policy) {
    for (const size_t r : rows) tables_.push_back(std::make_unique<Table>(r, policy));
    for (auto& table : tables_) caches_.push_back(table->cache);
  }
  Table& table(size_t t) { return *tables_[t]; }
  size_t hits = 0, keys = 0;

  // absent: a key that has no row. compare: with the model.
  template <typename Absent>
  void step(const std::vector<std::vector<int64_t>>& batch, const Absent& absent,
            bool compare = true) {
    const size_t count_of_tables = tables_.size();
    std::vector<int64_t> all;
    std::vector<uint32_t> first(1, 0);
    for (const auto& table_keys : batch) {
      all.insert(all.end(), table_keys.begin(), table_keys.end());
      first.push_back(static_cast<uint32_t>(all.size()));
    }
    const size_t count = all.size();
    std::vector<uint64_t> hashes;
    for (const int64_t key : all) hashes.push_back(CacheModel::hash_of(key));
    // Room for more keys than are distinct, as after a unique.
    const size_t room = count + 37;
    DeviceArray<int64_t> device_keys(room);
    DeviceArray<uint64_t> device_hashes(room);
    device_keys.write(all);
    device_hashes.write(hashes);
    const DeviceArray<uint32_t> device_first(first);
    DeviceUnique unique;
    unique.keys = device_keys.data();
    unique.hashes = device_hashes.data();
    unique.table_first = device_first.data();

    DeviceArena plan_sizes;
    DeviceProbed::take(plan_sizes, room, count_of_tables);
    const Scratch probed_memory(plan_sizes.used());
    DeviceArena plan_arena(probed_memory.data(), probed_memory.bytes());
    const DeviceProbed probed = DeviceProbed::take(plan_arena, room, count_of_tables);
    const Scratch scratch(device_cache_probe_scratch(room, count_of_tables));
    device_cache_probe(caches_.data(), count_of_tables, unique, room, DeviceLookup::kTrain, probed,
                       scratch.data(), scratch.bytes(), kStream);
    const auto missing_first = read_device(probed.missing_first, count_of_tables + 1);
    const size_t missing = missing_first.back();
    const auto missing_u = read_device(probed.missing, missing);
    const auto missing_keys = read_device(probed.missing_keys, missing);
    keys += count;
    hits += count - missing;

    // The host tier assigns places, and creates rows.
    std::vector<uint32_t> places(missing);
    for (size_t m = 0; m < missing; ++m) {
      Table& table = table_of(first, missing_u[m]);
      const int64_t key = missing_keys[m];
      places[m] = kNoSlot;
      if (absent(key)) continue;
      const auto [at, is_new] = table.places.emplace(key, static_cast<uint32_t>(table.host.size()));
      if (is_new) table.host.push_back({{key, 0, 0}, {}});
      REQUIRE(table.host.size() <= kMostRows);
      places[m] = at->second;
    }
    DeviceArena insert_sizes;
    DeviceInserted::take(insert_sizes, missing, count_of_tables);
    const Scratch insert_memory(insert_sizes.used());
    DeviceArena insert_arena(insert_memory.data(), insert_memory.bytes());
    const DeviceInserted in = DeviceInserted::take(insert_arena, missing, count_of_tables);
    const DeviceArray<uint32_t> device_places(places);
    const DeviceArray<std::byte> bypass(missing * kBypassStride + 16);
    const bool always = compare && clock_ % 4 == 3;
    const auto admit = always ? RowCache::Admit::kAlways : RowCache::Admit::kIfWorthMore;
    const Scratch more(device_cache_insert_scratch(missing, count_of_tables));
    device_cache_insert(caches_.data(), count_of_tables, unique, probed, missing,
                        device_places.data(), DeviceLookup::kTrain, admit,
                        {bypass.data(), kBypassStride}, in, more.data(), more.bytes(), kStream);

    const auto victims = read_device(in.victims, missing);
    const auto victim_places = read_device(in.victim_places, missing);
    for (size_t m = 0; m < missing; ++m) {
      if (victim_places[m] == kNoSlot) continue;
      const Table& table = table_of(first, missing_u[m]);
      CHECK(victims[m].key == table.host[victim_places[m]].header.key);
      CHECK(victims[m].count > table.host[victim_places[m]].header.count);
    }
    // Victims leave and rows come in.
    std::vector<DeviceHostRows> host_rows;
    for (const auto& table : tables_) host_rows.push_back(table->host_rows());
    const Scratch moving(device_rows_scratch(count_of_tables));
    device_bring_in(host_rows.data(), count_of_tables,
                    {probed.missing_first,
                     probed.missing_keys,
                     device_places.data(),
                     in.targets,
                     in.victim_places,
                     {}},
                    missing, moving.data(), moving.bytes(), kStream);
    if (compare)
      check(batch, first, unique, probed, in, missing, places, victim_places, bypass.data(),
            always);

    // A step adds 1 to every weight.
    const std::vector<float> ones(kWidth, -1.0f);
    const DeviceArray<float> gradient(ones);
    std::vector<uint32_t> begins(count + 1), order(count);
    for (size_t u = 0; u <= count; ++u) begins[u] = static_cast<uint32_t>(u);
    for (size_t u = 0; u < count; ++u) order[u] = static_cast<uint32_t>(u);
    const DeviceArray<const float*> rows(std::vector<const float*>(count, gradient.data()));
    const DeviceArray<uint32_t> device_begins(begins), device_order(order);
    UpdateStep step;
    step.layout.width = kWidth;
    step.learning_rate = 1.0f;
    step.clock = ++clock_;
    const std::vector<DeviceStep> steps(count_of_tables, DeviceStep{step, nullptr});
    const Scratch update(device_update_scratch(count, count_of_tables, kWidth));
    device_update(steps.data(), count_of_tables, device_first.data(),
                  {rows.data(), nullptr, device_begins.data(), device_order.data(), count}, nullptr,
                  probed.lines, update.data(), update.bytes(), kStream);
    for (size_t t = 0; t < count_of_tables; ++t) {
      for (const int64_t key : batch[t]) {
        if (tables_[t]->places.count(key) != 0) ++tables_[t]->updates[key];
      }
    }
    // Rows of the bypass return to the host tier; pins end.
    const auto bypass_first = read_device(in.bypass_first, count_of_tables + 1);
    const auto bypass_keys = read_device(in.bypass_keys, bypass_first.back());
    const auto bypass_places = read_device(in.bypass_places, bypass_first.back());
    for (size_t b = 0; b < bypass_keys.size(); ++b) {
      const size_t t = static_cast<size_t>(
          std::upper_bound(bypass_first.begin(), bypass_first.end(), b) - bypass_first.begin() - 1);
      CHECK(tables_[t]->host[bypass_places[b]].header.key == bypass_keys[b]);
    }
    device_write_back(host_rows.data(), count_of_tables, bypass_first.data(),
                      {nullptr, bypass.data(), kBypassStride, in.bypass_places, nullptr},
                      moving.data(), moving.bytes(), kStream);
    must(cudaDeviceSynchronize());
    const Scratch pins(device_cache_unpin_scratch(count_of_tables));
    device_cache_unpin(caches_.data(), count_of_tables, device_first.data(), probed.slots, room,
                       pins.data(), pins.bytes(), kStream);
    if (!compare) return;
    const auto slots = read_device(probed.slots, count);
    for (size_t t = 0; t < count_of_tables; ++t) {
      tables_[t]->model.unpin({slots.begin() + first[t], slots.begin() + first[t + 1]});
      CHECK(tables_[t]->model.differences(read_device(caches_[t].sets, caches_[t].set_count)) == 0);
    }
  }

  // Brings the host tier up to date, `piece` slots at a time.
  void flush(size_t piece) {
    for (auto& table : tables_) {
      const size_t slots = table->cache.slots();
      for (size_t first = 0; first < slots; first += piece) {
        const size_t size = std::min(piece, slots - first);
        DeviceArena sizes;
        DeviceDirty::take(sizes, size);
        const Scratch memory(sizes.used());
        DeviceArena arena(memory.data(), memory.bytes());
        const DeviceDirty dirty = DeviceDirty::take(arena, size);
        const Scratch scratch(device_cache_dirty_scratch(size));
        device_cache_dirty(table->cache, first, size, dirty, scratch.data(), scratch.bytes(),
                           kStream);
        const uint32_t count = read_device(dirty.count, 1)[0];
        const auto places = read_device(dirty.places, count);
        const auto headers = read_device(dirty.headers, count);
        const DeviceHostRows rows = table->host_rows();
        const uint32_t begins[] = {0, static_cast<uint32_t>(size)};
        const Scratch moving(device_rows_scratch(1));
        device_write_back(&rows, 1, begins, {dirty.lines, nullptr, 0, dirty.places, dirty.count},
                          moving.data(), moving.bytes(), kStream);
        must(cudaDeviceSynchronize());
        for (size_t i = 0; i < count; ++i) {
          const RowHeader& header = table->host[places[i]].header;
          CHECK(header.key == headers[i].key);
          CHECK(header.clock == headers[i].clock);
          CHECK(header.count == headers[i].count);
        }
      }
      table->model.clean();
    }
  }

  // Checks that every row has all of its updates.
  void check_rows() const {
    size_t wrong = 0;
    for (const auto& table : tables_) {
      for (const auto& [key, updates] : table->updates) {
        const Table::Row& row = table->host[table->places.at(key)];
        wrong += row.header.key != key || row.header.count != static_cast<uint32_t>(updates);
        for (const float w : row.weights) wrong += w != static_cast<float>(updates);
      }
    }
    CHECK(wrong == 0);
  }

 private:
  Table& table_of(const std::vector<uint32_t>& first, uint32_t u) {
    const auto at = std::upper_bound(first.begin(), first.end(), u);
    return *tables_[static_cast<size_t>(at - first.begin()) - 1];
  }

  void check(const std::vector<std::vector<int64_t>>& batch, const std::vector<uint32_t>& first,
             const DeviceUnique&, const DeviceProbed& probed, const DeviceInserted& in,
             size_t missing, const std::vector<uint32_t>& places,
             const std::vector<uint32_t>& victim_places, std::byte* bypass, bool always) {
    const auto slots = read_device(probed.slots, first.back());
    const auto lines = read_device(probed.lines, first.back());
    const auto got_places = read_device(probed.places, first.back());
    const auto missing_u = read_device(probed.missing, missing);
    const auto targets = read_device(in.targets, missing);
    std::vector<std::byte*> victims;
    for (size_t i = 0; i < missing; ++i) {
      if (victim_places[i] != kNoSlot) victims.push_back(targets[i]);
    }
    const auto evicted = read_device(in.evicted, tables_.size());
    size_t m = 0, v = 0, b = 0, wrong = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      Table& table = *tables_[t];
      std::vector<uint32_t> expected = table.model.probe(batch[t], DeviceLookup::kTrain);
      std::vector<int64_t> missing_keys;
      std::vector<uint32_t> missing_places;
      for (size_t i = 0; i < expected.size(); ++i) {
        if (expected[i] != kNoSlot) continue;
        wrong += missing_u[m + missing_keys.size()] != first[t] + i;
        missing_keys.push_back(batch[t][i]);
        missing_places.push_back(places[m + missing_places.size()]);
      }
      std::vector<CacheModel::Victim> gone;
      uint32_t all_gone = 0;
      const auto new_slots = table.model.insert(missing_keys, missing_places, DeviceLookup::kTrain,
                                                always, &gone, &all_gone);
      wrong += evicted[t] != all_gone;
      for (const CacheModel::Victim& victim : gone) {
        wrong += v >= victims.size() ||
                 victims[v] != table.cache.lines + victim.slot * table.cache.stride;
        ++v;
      }
      size_t next = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const size_t u = first[t] + i;
        std::byte* line = nullptr;
        if (expected[i] == kNoSlot) {
          const bool row = missing_places[next] != kNoSlot;
          expected[i] = new_slots[next];
          if (expected[i] == kNoSlot && row) line = bypass + b++ * kBypassStride;
          if (expected[i] != kNoSlot) line = table.cache.lines + expected[i] * table.cache.stride;
          wrong += targets[m + next] != line;
          ++next;
        } else {
          line = table.cache.lines + expected[i] * table.cache.stride;
        }
        wrong += slots[u] != expected[i];
        wrong += lines[u] != line;
        const auto place = table.places.find(batch[t][i]);
        wrong += got_places[u] != (place == table.places.end() ? kNoSlot : place->second);
      }
      m += missing_keys.size();
    }
    CHECK(v == victims.size());
    CHECK(read_device(in.bypass_first, tables_.size() + 1).back() == b);
    CHECK(wrong == 0);
  }

  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<DeviceCache> caches_;
  uint32_t clock_ = 0;
};

// Distinct keys, skewed, in random order.
std::vector<int64_t> draw(std::mt19937_64& random, size_t lookups, size_t rows) {
  std::set<int64_t> keys;
  for (size_t i = 0; i < lookups; ++i) {
    const double x = std::uniform_real_distribution<double>(0, 1)(random);
    keys.insert(static_cast<int64_t>(static_cast<double>(rows) * x * x * x) * 7919 - 3000);
  }
  std::vector<int64_t> shuffled(keys.begin(), keys.end());
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  return shuffled;
}

}  // namespace

TEST_CASE(
    "device cache: tables through small caches have the rows of tables without, as modelled") {
  for (const CachePolicy policy : {CachePolicy::kLfu, CachePolicy::kLru}) {
    for (uint64_t seed = 1; seed <= (kLess ? 1 : 3); ++seed) {
      // Batches with more distinct keys than the caches have slots, too.
      Trainer trainer({1, 64, 300}, policy);
      std::mt19937_64 random(seed);
      for (int step = 0; step < (kLess ? 10 : 40); ++step) {
        trainer.step({draw(random, 10 + random() % 60, 200), draw(random, random() % 300, 500),
                      draw(random, random() % 300, 1000)},
                     [](int64_t key) { return key % 13 == 0; });
        if (step % 16 == 7) trainer.flush(step % 3 == 0 ? 1000 : 50);
      }
      trainer.flush(64);
      trainer.check_rows();
      trainer.step({{}, {}, {}}, [](int64_t) { return false; });
    }
  }
}

TEST_CASE("device cache: extreme keys, and keys that are dropped") {
  Trainer trainer({100}, CachePolicy::kLfu);
  const std::vector<int64_t> keys{INT64_MIN, -1, 0, 1, INT64_MAX, 77, -77};
  const auto none = [](int64_t) { return false; };
  trainer.step({keys}, none);
  CHECK(trainer.hits == 0);
  trainer.step({keys}, none);
  CHECK(trainer.hits == keys.size());
  trainer.flush(1000);
  const std::vector<int64_t> gone{-1, 5, INT64_MIN};
  const DeviceArray<int64_t> device_gone(gone);
  device_cache_drop(trainer.table(0).cache, device_gone.data(), gone.size(), kStream);
  for (const int64_t key : gone) trainer.table(0).model.drop(key);
  trainer.step({keys}, none);
  CHECK(trainer.hits == 2 * keys.size() - 2);
  trainer.flush(1000);
  trainer.check_rows();
}

TEST_CASE("device cache: a lookup that only reads changes nothing") {
  Trainer trainer({64}, CachePolicy::kLfu);
  std::mt19937_64 random(5);
  trainer.step({draw(random, 100, 100)}, [](int64_t) { return false; });
  const DeviceCache cache = trainer.table(0).cache;
  const std::vector<int64_t> keys = draw(random, 50, 200);
  std::vector<uint64_t> hashes;
  for (const int64_t key : keys) hashes.push_back(CacheModel::hash_of(key));
  const DeviceArray<int64_t> device_keys(keys);
  const DeviceArray<uint64_t> device_hashes(hashes);
  const DeviceArray<uint32_t> first(std::vector<uint32_t>{0, static_cast<uint32_t>(keys.size())});
  DeviceUnique unique;
  unique.keys = device_keys.data();
  unique.hashes = device_hashes.data();
  unique.table_first = first.data();
  DeviceArena sizes;
  DeviceProbed::take(sizes, keys.size(), 1);
  const Scratch memory(sizes.used());
  DeviceArena arena(memory.data(), memory.bytes());
  const DeviceProbed probed = DeviceProbed::take(arena, keys.size(), 1);
  const Scratch scratch(device_cache_probe_scratch(keys.size(), 1));
  device_cache_probe(&cache, 1, unique, keys.size(), DeviceLookup::kRead, probed, scratch.data(),
                     scratch.bytes(), kStream);
  const auto slots = read_device(probed.slots, keys.size());
  size_t wrong = 0;
  for (size_t i = 0; i < keys.size(); ++i)
    wrong += slots[i] != trainer.table(0).model.find(keys[i]);
  CHECK(wrong == 0);
  CHECK(trainer.table(0).model.differences(read_device(cache.sets, cache.set_count)) == 0);
  CHECK(error_code([&] {
          device_cache_insert(&cache, 1, unique, probed, 0, nullptr, DeviceLookup::kRead,
                              RowCache::Admit::kAlways, {}, {}, nullptr, 0, kStream);
        }) == Code::kInvalidArgument);
}

TEST_CASE("device cache: lfu keeps nearly what an oracle would, as the cache in RAM does" *
          doctest::skip(kSanitized)) {
  if (kLess) return;  // the cases before compare with the same model, in fewer steps
  constexpr size_t kRows = 20000;
  constexpr size_t kSlots = 2048;
  std::vector<double> sums(kRows);
  double sum = 0;
  for (size_t i = 0; i < kRows; ++i) sums[i] = sum += std::pow(static_cast<double>(i + 1), -1.05);
  std::mt19937_64 random(3);
  Trainer lfu({kSlots}, CachePolicy::kLfu), lru({kSlots}, CachePolicy::kLru);
  RowCache ram(32, kSlots, CachePolicy::kLfu);
  size_t oracle = 0, all = 0, ram_hits = 0;
  for (int batch = 0; batch < 50; ++batch) {
    std::set<int64_t> seen;
    for (int i = 0; i < 2500; ++i) {
      const double at = std::uniform_real_distribution<double>(0, sum)(random);
      seen.insert(std::lower_bound(sums.begin(), sums.end(), at) - sums.begin());
    }
    std::vector<int64_t> keys(seen.begin(), seen.end());
    std::shuffle(keys.begin(), keys.end(), random);
    if (batch == 25) lfu.hits = lfu.keys = lru.hits = lru.keys = 0;
    const auto none = [](int64_t) { return false; };
    lfu.step({keys}, none, false);
    lru.step({keys}, none, false);
    for (const int64_t key : keys) {
      const uint64_t hash = CacheModel::hash_of(key);
      const uint32_t slot = ram.find(hash, key);
      ram.note_use(hash, slot);
      if (batch >= 25) {
        ++all;
        oracle += key < static_cast<int64_t>(kSlots) ? 1 : 0;
        ram_hits += slot != RowCache::kNone ? 1 : 0;
      }
      if (slot != RowCache::kNone) continue;
      const uint32_t chosen = ram.choose(hash, RowCache::Admit::kIfWorthMore);
      if (chosen == RowCache::kNone) continue;
      ram.release(chosen);
      ram.put(chosen, hash, key, 0);
    }
  }
  const auto share = [&](size_t hits) {
    return static_cast<double>(hits) / static_cast<double>(all);
  };
  MESSAGE("of ", all, " keys: device lfu ", share(lfu.hits), ", device lru ", share(lru.hits),
          ", RAM lfu ", share(ram_hits), ", oracle ", share(oracle));
  CHECK(share(lfu.hits) > 0.9 * share(oracle));
  CHECK(share(lfu.hits) > share(lru.hits));
  CHECK(share(lfu.hits) > 0.97 * share(ram_hits));
  lfu.flush(512);
  lfu.check_rows();
}

TEST_CASE("device cache: more rows than slots can be numbered are refused") {
  DeviceArena arena;
  CHECK(error_code([&] { DeviceCache::take(arena, size_t{1} << 33, 16, CachePolicy::kLfu); }) ==
        Code::kInvalidArgument);
  const DeviceCache cache = DeviceCache::take(arena, 33, 20, CachePolicy::kLru);
  CHECK(cache.slots() == 64);
  CHECK(cache.stride == 48);
  CHECK(error_code([&] { device_cache_dirty(cache, 60, 5, {}, nullptr, 0, kStream); }) ==
        Code::kOutOfRange);
}

}  // namespace hotrow
