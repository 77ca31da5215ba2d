#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "core/base/warning.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/serving/gpu_rows.h"

namespace hotrow {
namespace {

// Makes the salts of tables differ from hashes of keys.
constexpr uint64_t kSalt = 0x2545f4914f6cdd1d;
// A cache has no more room than for this many times the stored rows.
constexpr double kRoomOverStored = 2.0;
// Bytes of a pool beside its sets: salts, counts, and what aligns them.
constexpr size_t kBesideSets = 4096;
// Rows that come in together, at most.
constexpr size_t kMostRows = 4096;
// Keys that wait to come in, at most; others are dropped, and missed again.
constexpr size_t kMostWanted = size_t{1} << 16;
// The filler collects keys for this long.
constexpr auto kCollect = std::chrono::milliseconds(1);
constexpr int kMeasurements = 15;
constexpr double kMostKeys = 2147483647;  // of a lookup
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

size_t stride_of(size_t row_bytes) { return (sizeof(ServedHeader) + row_bytes + 15) / 16 * 16; }

}  // namespace

void check_serving_gpu(int gpu) { check_gpu("a cache of rows", gpu); }

std::unique_ptr<DeviceRows> make_device_rows(std::shared_ptr<HotRows> rows,
                                             const DeviceRowsOptions& options) {
  check_serving_gpu(options.gpu);
  const OnDevice here(options.gpu);
  return std::make_unique<GpuRows>(std::move(rows), options);
}

// --- memory --------------------------------------------------------------------------------------

double GpuRows::Pool::set_bytes() const {
  return static_cast<double>(sizeof(DeviceSet) + sizeof(uint64_t) +
                             kDeviceWays * stride_of(row_bytes));
}

GpuRows::GpuRows(std::shared_ptr<HotRows> rows, const DeviceRowsOptions& options)
    : rows_(std::move(rows)),
      options_(options),
      lookups_(std::make_unique<Lookups[]>(rows_->tables().size())) {
  if (options.bytes == 0) fail(Code::kInvalidArgument, "a cache of rows on a GPU of 0 bytes");
  make_pools();
  take_memory(options.bytes);
  least_keys_ = options.if_faster ? kNever : 0;
  filler_ = std::thread([this] { fill_wanted(); });
}

GpuRows::~GpuRows() {
  {
    const std::lock_guard lock(wanted_mutex_);
    stops_ = true;
  }
  wanted_changed_.notify_all();
  filler_.join();
  // The blocks wait for the device before they free their memory.
}

void GpuRows::make_pools() {
  const std::vector<StoredTable>& tables = rows_->tables();
  for (size_t t = 0; t < tables.size(); ++t) {
    const StoredTable& table = tables[t];
    if (table.width > kMostServedWidth) {
      fail(Code::kInvalidArgument,
           "table %s: rows of dim %zu; a GPU caches rows of dim %zu at most: serve it with "
           "--cache_device=cpu",
           table.name.c_str(), table.width, kMostServedWidth);
    }
    Pool* pool = nullptr;
    for (const auto& p : pools_) {
      if (p->row_bytes == table.row_bytes()) pool = p.get();
    }
    if (pool == nullptr) {
      pools_.push_back(std::make_unique<Pool>());
      pool = pools_.back().get();
      pool->row_bytes = table.row_bytes();
    }
    const uint64_t salt = combine64(kSalt, t);
    places_.push_back({pool, {static_cast<uint32_t>(pool->salts.size()), salt}});
    pool->salts.push_back(salt);
    pool->stored += static_cast<double>(std::max<uint64_t>(table.most_rows(), 1));
    pool->bounded = pool->bounded && table.most_rows() > 0;
  }
}

// Pools share the bytes in proportion to what they store.
void GpuRows::take_memory(uint64_t bytes) {
  const double beside = static_cast<double>(pools_.size() * kBesideSets);
  const double room = std::max(static_cast<double>(bytes) - beside, 0.0);
  double all = 0;
  for (const auto& pool : pools_) all += pool->stored * pool->set_bytes();
  for (const auto& pool : pools_) {
    double sets = room * pool->stored / all;
    if (pool->bounded) sets = std::min(sets, kRoomOverStored * pool->stored / kDeviceWays + 1);
    const auto rows = static_cast<size_t>(std::max(sets, 1.0)) * kDeviceWays;
    const auto take = [&](DeviceArena& arena) {
      return ServingCache::take(arena, rows, pool->row_bytes, pool->salts.size(), options_.policy);
    };
    pool->cache = take_exactly(pool->memory, take);
    device_serving_clear(pool->cache, pool->salts.data(), pool->salts.size(), updates_.get());
  }
  updated_.record(updates_.get());
  updated_.wait();
}

size_t GpuRows::slots() const {
  size_t slots = 0;
  for (const auto& pool : pools_) slots += pool->cache.slots();
  return slots;
}

size_t GpuRows::bytes() const {
  size_t bytes = 0;
  for (const auto& pool : pools_) bytes += pool->memory.bytes();
  return bytes;
}

// --- what pays off -------------------------------------------------------------------------------

void GpuRows::measure(size_t table, const int64_t* keys, size_t count) {
  if (!options_.if_faster || count < 2) return;
  using Seconds = std::chrono::duration<double>;
  const auto median_of = [](const std::function<void()>& run) {
    std::vector<double> times;
    for (int i = 0; i < kMeasurements; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run();
      times.push_back(Seconds(std::chrono::steady_clock::now() - begin).count());
    }
    std::nth_element(times.begin(), times.begin() + kMeasurements / 2, times.end());
    return times[kMeasurements / 2];
  };
  const OnDevice here(options_.gpu);
  const size_t width = rows_->tables()[table].width;
  const OwnStream stream;
  DeviceBlock there;
  there.reserve(count * width * sizeof(float));
  float* const output = reinterpret_cast<float*>(there.data());
  const auto on_gpu = [&](size_t n) {
    ServingFeature feature;
    feature.table = table;
    feature.keys = keys;
    feature.segments.keys = feature.segments.samples = n;
    std::vector<std::vector<uint32_t>> left;
    const auto call = begin(stream.get());
    call->look_up(&feature, 1, &output, Overlay(), &left);
  };
  // With the copy of the rows that the GPU then needs.
  const auto on_host = [&] {
    const auto call = begin(stream.get());
    HotRows::Probe probe;
    probe.table = table;
    probe.keys = keys;
    probe.count = count;
    probe.rows = call->host_floats(count * width);
    std::vector<HotRows::Miss> misses;
    rows_->gather(&probe, 1, &misses);
    copy_async(output, probe.rows, count * width, stream.get());
    check(cudaStreamSynchronize(stream.get()), "measure a lookup");
  };
  const double few = median_of([&] { on_gpu(1); });
  const double many = median_of([&] { on_gpu(count); });
  const double host = median_of(on_host) / static_cast<double>(count);
  const double gpu = std::max(many - few, 0.0) / static_cast<double>(count - 1);
  const double saved = host - gpu;
  const double least = saved > 0 ? few / saved : static_cast<double>(kNever);
  least_keys_ = least >= kMostKeys ? kNever : static_cast<uint64_t>(least) + 1;
}

// --- changes -------------------------------------------------------------------------------------

GpuRows::Sent::Sent(DeviceArena& arena, size_t count, size_t stride) {
  keys = arena.take<int64_t>(count);
  rows = arena.take<std::byte>(count * stride);
}

template <typename Change>
void GpuRows::or_off(Change&& change) {
  if (!why_off().empty()) return;
  try {
    const OnDevice here(options_.gpu);
    change();
  } catch (const std::exception& error) {
    // Rows on the GPU may be older than those in RAM now.
    least_keys_ = kNever;
    const std::lock_guard lock(off_mutex_);
    if (!why_off_.empty()) return;
    why_off_ = error.what();
    warn("rows on GPU " + std::to_string(options_.gpu) +
         " are given up, and read from RAM from now on; restart the server when the GPU works "
         "again: " +
         why_off_);
  }
}

std::string GpuRows::why_off() const {
  const std::lock_guard lock(off_mutex_);
  return why_off_;
}

GpuRows::Sent GpuRows::pinned_rows(const Place& place, size_t count) {
  return take_from(update_pinned_, [&](DeviceArena& arena) {
    return Sent(arena, count, place.pool->cache.stride);
  });
}

void GpuRows::send(const Place& place, ServingUpdate what, const Sent& here, size_t count,
                   ServingTicket ticket) {
  const ServingCache& cache = place.pool->cache;
  const DeviceStream stream = updates_.get();
  const size_t scratch_bytes = device_serving_update_scratch(count);
  std::byte* scratch = nullptr;
  const auto take = [&](DeviceArena& arena) {
    const Sent sent(arena, count, cache.stride);
    scratch = arena.take<std::byte>(scratch_bytes);
    return sent;
  };
  const Sent there = take_from(update_memory_, take);
  copy_async(there.keys, here.keys, count, stream);
  copy_async(there.rows, here.rows, count * cache.stride, stream);
  device_serving_update(cache, place.table, what, there.keys, count, now_.load(), ticket,
                        there.rows, cache.stride, scratch, scratch_bytes, stream);
  updated_.record(stream);
  updated_.wait();
}

void GpuRows::update(size_t table, const int64_t* keys, size_t count, const std::byte* rows,
                     const RowVersion* versions) {
  const Place& place = places_.at(table);
  const size_t row_bytes = place.pool->row_bytes, stride = place.pool->cache.stride;
  const std::lock_guard lock(updates_mutex_);
  or_off([&] {
    const ServingTicket now = clock_.change();
    for (size_t first = 0; first < count; first += kMostRows) {
      const size_t piece = std::min(kMostRows, count - first);
      const Sent here = pinned_rows(place, piece);
      std::copy_n(keys + first, piece, here.keys);
      for (size_t i = 0; i < piece; ++i) {
        std::byte* const row = here.rows + i * stride;
        const ServedHeader header{keys[first + i], versions[first + i]};
        std::memcpy(row, &header, sizeof(header));
        if ((header.version & kTombstone) != 0) continue;
        std::memcpy(row + sizeof(header), rows + (first + i) * row_bytes, row_bytes);
      }
      send(place, ServingUpdate::kWrite, here, piece, now);
    }
  });
}

void GpuRows::fill(size_t table, const int64_t* keys, size_t count) {
  for (size_t first = 0; first < count; first += kMostRows) {
    fill_piece(table, keys + first, std::min(kMostRows, count - first));
  }
}

void GpuRows::fill_piece(size_t table, const int64_t* keys, size_t count) {
  const Place& place = places_.at(table);
  const size_t row_bytes = place.pool->row_bytes, stride = place.pool->cache.stride;
  const std::lock_guard lock(updates_mutex_);
  or_off([&] {
    // Before the rows in RAM are read.
    const ServingTicket ticket = clock_.fetch();
    versions_.resize(count), states_.resize(count), stored_.resize(count * row_bytes);
    ReadRequest read;
    read.table = table;
    read.keys = keys;
    read.count = count;
    read.rows = stored_.data();
    read.versions = versions_.data();
    read.states = states_.data();
    rows_->read(read);
    const Sent here = pinned_rows(place, count);
    size_t found = 0;
    for (size_t i = 0; i < count; ++i) {
      if (states_[i] != ReadState::kFound) continue;
      std::byte* const row = here.rows + found * stride;
      const ServedHeader header{keys[i], versions_[i]};
      std::memcpy(row, &header, sizeof(header));
      std::memcpy(row + sizeof(header), stored_.data() + i * row_bytes, row_bytes);
      here.keys[found++] = keys[i];
    }
    ++now_;
    send(place, ServingUpdate::kFill, here, found, ticket);
  });
}

void GpuRows::invalidate_shard(size_t shard, size_t shards) {
  const std::lock_guard lock(updates_mutex_);
  or_off([&] {
    const ServingTicket now = clock_.change();
    for (const auto& pool : pools_) {
      device_serving_remove(pool->cache, static_cast<uint32_t>(shard),
                            static_cast<uint32_t>(shards), now, updates_.get());
    }
    updated_.record(updates_.get());
    updated_.wait();
  });
}

// --- keys that were missed -----------------------------------------------------------------------

void GpuRows::want(size_t table, const int64_t* keys, size_t count) {
  bool first = false;
  {
    const std::lock_guard lock(wanted_mutex_);
    first = wanted_.empty();
    const size_t room = kMostWanted - std::min(kMostWanted, wanted_.size());
    for (size_t i = 0; i < std::min(count, room); ++i) wanted_.emplace_back(table, keys[i]);
  }
  if (first) wanted_changed_.notify_one();
}

void GpuRows::fill_wanted() {
  std::vector<std::pair<size_t, int64_t>> all;
  std::vector<int64_t> keys;
  for (;;) {
    {
      std::unique_lock lock(wanted_mutex_);
      wanted_changed_.wait(lock, [&] { return stops_ || !wanted_.empty(); });
      if (wanted_changed_.wait_for(lock, kCollect, [&] { return stops_; })) return;
      all.clear();
      all.swap(wanted_);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    for (size_t i = 0; i < all.size();) {
      const size_t table = all[i].first;
      keys.clear();
      for (; i < all.size() && all[i].first == table; ++i) keys.push_back(all[i].second);
      fill(table, keys.data(), keys.size());
    }
  }
}

// --- counts --------------------------------------------------------------------------------------

void GpuRows::note(size_t table, uint64_t hits, uint64_t misses) {
  lookups_[table].hits.fetch_add(hits, std::memory_order_relaxed);
  lookups_[table].misses.fetch_add(misses, std::memory_order_relaxed);
}

DeviceLookupCounts GpuRows::lookups(size_t table) const {
  const Lookups& own = lookups_[table];
  return {own.hits.load(std::memory_order_relaxed), own.misses.load(std::memory_order_relaxed)};
}

DeviceRowCounts GpuRows::counts() const {
  DeviceRowCounts sums;
  const std::lock_guard lock(updates_mutex_);
  if (!why_off().empty()) return sums;
  const OnDevice here(options_.gpu);
  update_pinned_.reserve(pools_.size() * sizeof(ServingCounts));
  auto* const counts = reinterpret_cast<ServingCounts*>(update_pinned_.data());
  for (size_t p = 0; p < pools_.size(); ++p) {
    copy_async(&counts[p], pools_[p]->cache.counts, 1, updates_.get());
  }
  updated_.record(updates_.get());
  updated_.wait();
  for (size_t p = 0; p < pools_.size(); ++p) {
    sums.inserted += counts[p].inserted;
    sums.evicted += counts[p].evicted;
    sums.refused += counts[p].refused;
    sums.updated += counts[p].updated;
    sums.removed += counts[p].removed;
  }
  return sums;
}

}  // namespace hotrow
