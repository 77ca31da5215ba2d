#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/sets.h"
#include "core/gpu/step/rank_pass.h"
#include "core/gpu/step/tier.h"
#include "core/gpu/step/workspace.h"
#include "core/table/table.h"

namespace hotrow {
namespace {

// Slots that are scanned together.
constexpr size_t kPieceSlots = size_t{1} << 16;
// Keys passed to device_cache_expect together.
constexpr size_t kPieceKeys = size_t{1} << 16;
constexpr size_t kCounts = 3;
constexpr uint64_t kZeros[kCounts] = {};
// Rows that one host thread looks at, at least, and how far ahead it prefetches.
constexpr size_t kTaskRows = 512, kRowsAhead = 16;

__global__ void find_headers(DeviceCache cache, const int64_t* keys, uint32_t count,
                             RowHeader* headers) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) {
    const uint64_t hash = mix64(static_cast<uint64_t>(keys[i]));
    const uint32_t number = set_of(cache, hash);
    const DeviceSet& set = cache.sets[number];
    RowHeader found = {keys[i], Partition::kFree, 0};
    for (uint32_t way = 0; way < kDeviceWays; ++way) {
      if (set.tags[way] != tag_of(hash)) continue;
      const std::byte* const line = line_of(cache, number * kDeviceWays + way);
      if (key_of(line) == keys[i]) found = *reinterpret_cast<const RowHeader*>(line);
    }
    headers[i] = found;
  }
}

struct Found {
  Found(DeviceArena& arena, size_t count) {
    keys = arena.take<int64_t>(count);
    headers = arena.take<RowHeader>(count);
  }
  int64_t* keys;
  RowHeader* headers;
};

// Of dirty rows, in pinned memory.
struct Leaving {
  Leaving(DeviceArena& arena, size_t count) {
    headers = arena.take<RowHeader>(count);
    places = arena.take<uint32_t>(count);
    this->count = arena.take<uint32_t>(1);
  }
  RowHeader* headers;
  uint32_t *places, *count;
};

struct Expected {
  Expected(DeviceArena& arena, size_t count) {
    keys = arena.take<int64_t>(count);
    uses = arena.take<uint32_t>(count);
  }
  int64_t* keys;
  uint32_t* uses;
};

}  // namespace

std::unique_ptr<DeviceTier> make_gpu_tier(Table& table) {
  // Its streams, events and memory belong to the device that is current when they are made.
  const int gpu = table.options().cache.gpu;
  check_gpu("table " + table.name() + ": its device tier", gpu);
  const OnDevice here(gpu);
  return std::make_unique<GpuTier>(table);
}

GpuTier* gpu_tier_of(const Table& table) {
  return table.on_gpu() ? static_cast<GpuTier*>(&table.tier()) : nullptr;
}

const DeviceCache* describe_caches(const std::vector<GpuTier*>& tiers, DeviceDescribed* to) {
  std::vector<DeviceCache> caches;
  for (const GpuTier* tier : tiers) caches.push_back(tier->cache());
  return to->add(caches);
}

GpuTier::GpuTier(Table& table) : table_(&table), device_(table.options().cache.gpu) {
  const CacheOptions& options = table.options().cache;
  const size_t row_bytes = sizeof(RowHeader) + table.line_bytes();
  cache_ = take_exactly(memory_, [&](DeviceArena& arena) {
    return DeviceCache::take(arena, options.rows, table.line_bytes(), options.policy);
  });
  const DeviceStream stream = own_stream_.get();
  device_cache_clear(cache_, stream);
  const UpdateStep step = table.step_settings();
  take_from(constants_, [&](DeviceArena& arena) {
    default_line_ = arena.take<std::byte>(row_bytes);
    corrections_ = arena.take<float>(step.corrections_count);
    counts_ = arena.take<uint64_t>(kCounts);
    cache_on_device_ = arena.take<DeviceCache>(1);
  });
  upload(cache_on_device_, &cache_, 1, stream);
  upload(counts_, kZeros, kCounts, stream);
  pinned_.reserve(std::max(row_bytes, step.corrections_count * sizeof(float)));
  upload_bytes(default_line_, table.default_line(), row_bytes, stream);
  if (step.corrections_count > 0) {
    std::memcpy(pinned_.data(), step.corrections, step.corrections_count * sizeof(float));
    copy_async(corrections_, reinterpret_cast<const float*>(pinned_.data()), step.corrections_count,
               stream);
  }
  own_use_->record(stream);
  own_use_->wait();
  host_rows_.emplace(table, counts_ + kCounts - 1);
  if (table.sharding().ranks != nullptr) {
    rank_work = std::make_unique<DeviceRankWork>();
    ahead_ = std::make_unique<DevicePrefetch>(table, *this);
  }
}

GpuTier::~GpuTier() {
  // Memory is freed when no work uses it any more.
  ahead_.reset();
  try {
    const OnDevice here(device_);
    wait_for_host_rows();
    if (rank_work != nullptr) rank_work->used.wait();
    check(cudaStreamSynchronize(own_stream_.get()), "the end of a table");
  } catch (const Error&) {
    // The device is lost, and its memory with it.
  }
}

std::shared_ptr<void> GpuTier::copy_ahead(const std::vector<Feature>& features) {
  const OnDevice here(device_);
  auto ahead = rank_work->features_ahead.take();
  ahead->copy(features);
  return ahead;
}

size_t GpuTier::bytes() const {
  size_t total = memory_.bytes() + constants_.bytes() + scratch_.bytes() + host_rows_->bytes();
  if (ahead_ != nullptr) total += ahead_->bytes();
  if (rank_work != nullptr) total += rank_work->bytes + rank_work->features_ahead.bytes();
  total += keys_pool.bytes();
  return total + (workspace == nullptr ? 0 : workspace->bytes());
}

size_t GpuTier::piece_rows() const {
  return std::max<size_t>(table_->options().cache.piece_bytes / stride(), 1);
}

// --- rows that were lost -------------------------------------------------------------------------

void GpuTier::lose_rows(const char* why) noexcept {
  if (lost_[0] == '\0') std::snprintf(lost_, sizeof(lost_), "%s", why);
}

void GpuTier::refuse_if_lost() const {
  if (lost_[0] == '\0') return;
  fail(Code::kDataLoss,
       "table %s: rows on GPU %d were lost when a call failed: %s; continue from a checkpoint",
       table_->name().c_str(), device_, lost_);
}

void GpuTier::wait_for_host_rows() {
  last_use()->wait();
  wait_for_transit();
}

namespace {

// Of each tier, (T), or null. Those of the calls of one layer are the same.
void hold_each(const std::vector<std::shared_ptr<DeviceEvent>>& events, DeviceStream stream) {
  const DeviceEvent* held = nullptr;
  for (const auto& event : events) {
    if (event == nullptr || event.get() == held) continue;
    event->hold(stream);
    held = event.get();
  }
}

}  // namespace

void hold_slots(const std::vector<GpuTier*>& tiers, DeviceStream stream) {
  std::vector<std::shared_ptr<DeviceEvent>> uses;
  for (const GpuTier* tier : tiers) uses.push_back(tier->last_use());
  hold_each(uses, stream);
}

void hold_host_rows(const std::vector<GpuTier*>& tiers, DeviceStream stream) {
  std::vector<std::shared_ptr<DeviceEvent>> all;
  for (const GpuTier* tier : tiers) all.push_back(tier->gone_);
  hold_each(all, stream);
  for (GpuTier* tier : tiers) tier->gone_ = nullptr;
}

// --- rows go out ---------------------------------------------------------------------------------

template <typename KeyOf, typename Visit>
void GpuTier::visit_host_rows(KeyOf&& key_of, const uint32_t* places, size_t count,
                              const Executor& executor, Visit&& visit) {
  const size_t tasks = count < kTaskRows ? 1 : std::min<size_t>(executor.threads(), 32);
  const auto number_of = [&](size_t i) {
    return table_->partition_number(key_of(i), mix64(static_cast<uint64_t>(key_of(i))));
  };
  // Each task has its own partitions.
  executor.run(tasks, [&](size_t task) {
    for (size_t i = 0; i < count + kRowsAhead; ++i) {
      if (i < count && places[i] != kNoSlot) {
        const size_t number = number_of(i);
        if (number % tasks == task) __builtin_prefetch(table_->partition(number).at(places[i]));
      }
      if (i < kRowsAhead) continue;
      const size_t r = i - kRowsAhead;
      if (places[r] == kNoSlot) continue;
      const size_t number = number_of(r);
      if (number % tasks != task) continue;
      Partition& partition = table_->partition(number);
      std::unique_lock lock(partition.mutex, std::defer_lock);
      if (table_->snapshot_open()) lock.lock();
      visit(partition, r);
    }
  });
}

void GpuTier::before_write_back(const RowHeader* rows, const uint32_t* places, size_t count,
                                const Executor& executor) {
  visit_host_rows(
      [&](size_t i) { return rows[i].key; }, places, count, executor,
      [&](Partition& partition, size_t i) { partition.before_write_back(places[i], rows[i]); });
}

void GpuTier::before_write(const int64_t* keys, const uint32_t* places, size_t count,
                           const Executor& executor) {
  visit_host_rows([&](size_t i) { return keys[i]; }, places, count, executor,
                  [&](Partition& partition, size_t i) { partition.before_write(places[i]); });
}

size_t GpuTier::take_written_back() {
  const DeviceStream stream = own_stream_.get();
  uint64_t* const counted = counts_ + kCounts - 1;
  hold(stream);
  pinned_.reserve(sizeof(uint64_t));
  auto* const count = reinterpret_cast<uint64_t*>(pinned_.data());
  copy_async(count, counted, 1, stream);
  ready_.record(stream);
  ready_.wait();
  // The last that can fail: until then the next call finds the count.
  upload(counted, kZeros, 1, stream);
  end(stream);
  return *count;
}

size_t GpuTier::settle() {
  const OnDevice here(device_);
  for (size_t first = 0; first < slots(); first += kPieceSlots) {
    settle_slots(first, std::min(kPieceSlots, slots() - first));
  }
  return take_written_back();
}

void GpuTier::settle_ahead() {
  const size_t piece = std::min(kPieceSlots, 4 * piece_rows());
  const OnDevice here(device_);
  std::optional<OwnStream> stream;
  std::optional<DeviceEvent> idle;
  for (size_t first = 0; first < slots(); first += piece) {
    {
      const std::shared_lock lock(table_->mutex());
      if (!table_->unsettled()) return;
    }
    if (!stream.has_value()) stream.emplace(), idle.emplace();
    const auto lock = lock_when_idle(stream->get(), &*idle);
    settle_slots(first, std::min(piece, slots() - first));
    table_->note_settled(0);
  }
}

void GpuTier::settle_slots(size_t first, size_t count) {
  const DeviceStream stream = own_stream_.get();
  const SlotUse use(*this, stream);
  const size_t dirty_bytes = device_cache_dirty_scratch(count);
  const size_t rows_bytes = device_rows_scratch(1);
  std::byte *scratch = nullptr, *rows_scratch = nullptr;
  const DeviceDirty dirty = take_from(scratch_, [&](DeviceArena& arena) {
    scratch = arena.take<std::byte>(dirty_bytes);
    rows_scratch = arena.take<std::byte>(rows_bytes);
    return DeviceDirty::take(arena, count);
  });
  std::optional<Leaving> leaving;
  if (table_->watching()) {
    leaving = take_from(pinned_, [&](DeviceArena& arena) { return Leaving(arena, count); });
  }
  const DeviceHostRows rows = host_rows_->rows();
  const uint32_t begins[] = {0, static_cast<uint32_t>(count)};
  change_slots([&] {
    device_cache_dirty(cache_, first, count, dirty, scratch, dirty_bytes, stream);
    if (leaving.has_value()) {
      copy_async(leaving->count, dirty.count, 1, stream);
      copy_async(leaving->places, dirty.places, count, stream);
      copy_async(leaving->headers, dirty.headers, count, stream);
      ready_.record(stream);
      ready_.wait();
      wait_for_transit();
      before_write_back(leaving->headers, leaving->places, *leaving->count, Executor());
    }
    hold_host_rows({this}, stream);
    device_write_back(&rows, 1, begins, {dirty.lines, nullptr, 0, dirty.places, dirty.count},
                      rows_scratch, rows_bytes, stream);
  });
}

std::unique_lock<std::shared_mutex> GpuTier::lock_when_idle(DeviceStream stream,
                                                            DeviceEvent* idle) {
  return hotrow::lock_when_idle({this}, stream, idle, [&] { return table_->lock_beside_steps(); });
}

void GpuTier::clear() {
  const OnDevice here(device_);
  // The caller may free or replace rows.
  end_transit();
  host_rows_->forget();
  if (ahead_ != nullptr) ahead_->forget();
  change_slots([&] {
    device_cache_clear(cache_, own_stream_.get());
    record_use(own_stream_.get());
  });
  lost_[0] = '\0';
}

void GpuTier::read_headers(const int64_t* keys, size_t count, RowHeader* headers) {
  const OnDevice here(device_);
  const DeviceStream stream = own_stream_.get();
  begin(stream);
  const auto take = [&](DeviceArena& arena) { return Found(arena, count); };
  const Found device = take_from(scratch_, take), host = take_from(pinned_, take);
  std::memcpy(host.keys, keys, count * sizeof(int64_t));
  copy_async(device.keys, host.keys, count, stream);
  launch("cache: headers", find_headers, blocks_for(count), kBlockThreads, stream, cache_,
         device.keys, static_cast<uint32_t>(count), device.headers);
  copy_async(host.headers, device.headers, count, stream);
  ready_.record(stream);
  ready_.wait();
  std::memcpy(headers, host.headers, count * sizeof(RowHeader));
}

void GpuTier::drop(const int64_t* keys, size_t count) {
  if (count == 0) return;
  const OnDevice here(device_);
  const DeviceStream stream = own_stream_.get();
  begin(stream);
  const auto take = [&](DeviceArena& arena) { return arena.take<int64_t>(count); };
  int64_t* const device = take_from(scratch_, take);
  int64_t* const host = take_from(pinned_, take);
  std::memcpy(host, keys, count * sizeof(int64_t));
  copy_async(device, host, count, stream);
  change_slots([&] {
    device_cache_drop(cache_, device, count, stream);
    if (ahead_ != nullptr) ahead_->leave_out_free(stream);
    record_use(stream);
    own_use_->wait();
  });
}

UpdateTotals GpuTier::take_updates() {
  const OnDevice here(device_);
  const DeviceStream stream = own_stream_.get();
  hold(stream);
  if (gone_ != nullptr) gone_->hold(stream);
  pinned_.reserve(kCounts * sizeof(uint64_t));
  auto* const counts = reinterpret_cast<uint64_t*>(pinned_.data());
  copy_async(counts, counts_, kCounts, stream);
  ready_.record(stream);
  ready_.wait();
  // The last that can fail: until then the next call finds the counts.
  upload(counts_, kZeros, kCounts, stream);
  end(stream);
  return {counts[0], counts[1], counts[2]};
}

// --- prefetching ---------------------------------------------------------------------------------

void GpuTier::prefetch(const int64_t* keys, size_t count) {
  // On ranks it exists already: a thread that others wait for must not wait for the lock.
  if (table_->sharding().ranks == nullptr) {
    std::unique_lock lock(table_->mutex());
    const OnDevice here(device_);
    if (ahead_ == nullptr) ahead_ = std::make_unique<DevicePrefetch>(*table_, *this);
  }
  ahead_->add(keys, count);
}

void GpuTier::wait_for_prefetch() {
  if (ahead_ != nullptr) ahead_->wait();
}

void GpuTier::let_go_of_windows() {
  if (ahead_ != nullptr) ahead_->let_go_of_all();
}

void GpuTier::expect(const int64_t* keys, const uint32_t* uses, size_t count) {
  const OnDevice here(device_);
  const DeviceStream stream = own_stream_.get();
  begin(stream);
  for (size_t first = 0; first < count; first += kPieceKeys) {
    const size_t piece = std::min(kPieceKeys, count - first);
    const auto take = [&](DeviceArena& arena) { return Expected(arena, piece); };
    const Expected device = take_from(scratch_, take), host = take_from(pinned_, take);
    std::memcpy(host.keys, keys + first, piece * sizeof(int64_t));
    std::memcpy(host.uses, uses + first, piece * sizeof(uint32_t));
    copy_async(device.keys, host.keys, piece, stream);
    copy_async(device.uses, host.uses, piece, stream);
    device_cache_expect(cache_, device.keys, device.uses, piece, stream);
    ready_.record(stream);
    ready_.wait();
  }
}

}  // namespace hotrow
