#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/sets.h"
#include "core/gpu/step/rank_pass.h"
#include "core/gpu/step/tier.h"
#include "core/gpu/step/workspace.h"
#include "core/table/table.h"

namespace hotrow {
namespace {

// Rows that one host thread copies together.
constexpr size_t kBlockRows = 512;
// Slots that are scanned together.
constexpr size_t kPieceSlots = size_t{1} << 16;
// Keys passed to device_cache_expect together.
constexpr size_t kPieceKeys = size_t{1} << 16;
constexpr uint64_t kNoUpdates[2] = {0, 0};
// Threads that write all rows back: one for this many bytes of slots, and at most so many.
constexpr size_t kSettlerBytes = size_t{64} << 20;
constexpr size_t kMostSettlers = 8;

// The GPU of the table's options.
int present_device(const Table& table) {
  int count = 0;
  const int device = table.options().cache.gpu;
  const cudaError_t error = cudaGetDeviceCount(&count);
  ignore(error);
  if (error != cudaSuccess || count == 0) {
    fail(Code::kFailedPrecondition, "table %s: its device tier needs a GPU, and there is none: %s",
         table.name().c_str(), error == cudaSuccess ? "no device" : cudaGetErrorString(error));
  }
  if (device < 0 || device >= count) {
    fail(Code::kFailedPrecondition, "table %s: its device tier is on GPU %d; there are 0 to %d",
         table.name().c_str(), device, count - 1);
  }
  return device;
}

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
  const OnDevice here(present_device(table));
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

void hold_all(const std::vector<GpuTier*>& tiers, DeviceStream stream) {
  std::vector<std::shared_ptr<const DeviceEvent>> held;
  for (const GpuTier* tier : tiers) {
    auto use = tier->last_use();
    if (std::find(held.begin(), held.end(), use) != held.end()) continue;
    use->hold(stream);
    held.push_back(std::move(use));
  }
}

GpuTier::GpuTier(Table& table)
    : table_(&table),
      device_(table.options().cache.gpu),
      row_bytes_(sizeof(RowHeader) + table.line_bytes()) {
  const CacheOptions& options = table.options().cache;
  cache_ = take_from(memory_, [&](DeviceArena& arena) {
    return DeviceCache::take(arena, options.rows, table.line_bytes(), options.policy);
  });
  const DeviceStream stream = out_stream_.get();
  device_cache_clear(cache_, stream);
  const UpdateStep step = table.step_settings();
  take_from(constants_, [&](DeviceArena& arena) {
    default_line_ = arena.take<std::byte>(row_bytes_);
    corrections_ = arena.take<float>(step.corrections_count);
    update_counts_ = arena.take<uint64_t>(2);
    cache_on_device_ = arena.take<DeviceCache>(1);
  });
  upload(cache_on_device_, &cache_, 1, stream);
  upload(update_counts_, kNoUpdates, 2, stream);
  pinned_.reserve(std::max(row_bytes_, step.corrections_count * sizeof(float)));
  upload_bytes(default_line_, table.default_line(), row_bytes_, stream);
  if (step.corrections_count > 0) {
    std::memcpy(pinned_.data(), step.corrections, step.corrections_count * sizeof(float));
    copy_async(corrections_, reinterpret_cast<const float*>(pinned_.data()), step.corrections_count,
               stream);
  }
  end_recorded(stream);
  own_use_->wait();
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
    last_use()->wait();
    if (rank_work != nullptr) rank_work->used.wait();
    check(cudaStreamSynchronize(in_stream_.get()), "the end of a table");
    check(cudaStreamSynchronize(out_stream_.get()), "the end of a table");
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
  size_t total = memory_.bytes() + constants_.bytes() + scratch_.bytes();
  for (const Chunk& chunk : in_) total += chunk.device.bytes();
  for (const Chunk& chunk : out_) total += chunk.device.bytes();
  if (ahead_ != nullptr) total += ahead_->bytes();
  if (rank_work != nullptr) total += rank_work->bytes + rank_work->features_ahead.bytes();
  total += keys_pool.bytes();
  return total + (workspace == nullptr ? 0 : workspace->bytes());
}

size_t GpuTier::chunk_rows() const {
  return std::max<size_t>(table_->options().cache.staging_bytes / stride(), 1);
}

void GpuTier::reserve(size_t rows) {
  finish(Executor());
  reserve_out(rows, Executor());
  for (Chunk& chunk : in_) chunk.reserve(staging_bytes(rows), staging_bytes(chunk_rows()));
}

void GpuTier::reserve_out(size_t rows, const Executor& executor) {
  const size_t bytes = staging_bytes(rows);
  const bool grows = std::any_of(out_, out_ + 2, [&](const Chunk& chunk) {
    return chunk.pinned.bytes() < bytes || chunk.device.bytes() < bytes;
  });
  if (!grows) return;
  finish(executor);
  for (Chunk& chunk : out_) chunk.reserve(bytes, staging_bytes(chunk_rows()));
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

// --- rows come in --------------------------------------------------------------------------------

void GpuTier::begin_bring_in(std::vector<const std::byte*> lines, const Executor& executor) {
  incoming_ = std::move(lines);
  staged_ = scattered_ = 0;
  next_scatter_ = next_stage_;
  for (size_t i = 0; i < 2 && staged_ < incoming_.size(); ++i) stage(executor);
}

void GpuTier::end_bring_in(std::byte* const* targets, const Executor& executor,
                           DeviceStream stream) {
  while (scattered_ < incoming_.size()) {
    scatter(targets, stream);
    if (staged_ < incoming_.size()) stage(executor);
  }
  incoming_.clear();
}

void GpuTier::stage(const Executor& executor) {
  Chunk& chunk = in_[next_stage_++ % 2];
  chunk.moved.wait();  // its rows may not have been scattered, if that call failed
  chunk.filled.wait();
  const size_t first = staged_, rows = std::min(chunk_rows(), incoming_.size() - first);
  chunk.reserve(staging_bytes(rows), staging_bytes(chunk_rows()));
  executor.run((rows + kBlockRows - 1) / kBlockRows, [&](size_t block) {
    const size_t end = std::min(rows, (block + 1) * kBlockRows);
    for (size_t i = block * kBlockRows; i < end; ++i) {
      if (i + 4 < end && incoming_[first + i + 4] != nullptr) {
        __builtin_prefetch(incoming_[first + i + 4]);
      }
      const std::byte* const line = incoming_[first + i];
      if (line != nullptr) std::memcpy(chunk.pinned.data() + i * stride(), line, row_bytes_);
    }
  });
  copy_async(chunk.device.data(), chunk.pinned.data(), rows * stride(), in_stream_.get());
  chunk.moved.record(in_stream_.get());
  chunk.rows = rows;
  staged_ += rows;
}

void GpuTier::scatter(std::byte* const* targets, DeviceStream stream) {
  Chunk& chunk = in_[next_scatter_++ % 2];
  chunk.moved.hold(stream);
  device_copy_lines({nullptr, chunk.device.data(), stride()}, {targets + scattered_, nullptr, 0},
                    nullptr, chunk.rows, row_bytes_, stream);
  chunk.filled.record(stream);
  scattered_ += chunk.rows;
}

// --- rows go out ---------------------------------------------------------------------------------

void GpuTier::send_back(const DeviceLines& rows, const uint32_t* places, size_t count,
                        const Executor& executor, DeviceStream stream) {
  for (size_t first = 0; first < count;) {
    Chunk& chunk = out_[next_out_++ % 2];
    finish(chunk, executor);
    const size_t piece = std::min(chunk_rows(), count - first);
    chunk.reserve(staging_bytes(piece), staging_bytes(chunk_rows()));
    chunk.places.assign(places + first, places + first + piece);
    DeviceLines from = rows;
    if (from.pointers != nullptr) {
      from.pointers += first;
    } else {
      from.base += first * from.stride;
    }
    device_copy_lines(from, {nullptr, chunk.device.data(), stride()}, nullptr, piece, row_bytes_,
                      stream);
    chunk.moved.record(stream);
    chunk.moved.hold(out_stream_.get());
    copy_async(chunk.pinned.data(), chunk.device.data(), piece * stride(), out_stream_.get());
    chunk.filled.record(out_stream_.get());
    chunk.rows = piece;
    first += piece;
  }
}

void GpuTier::finish(const Executor& executor) {
  for (size_t i = 0; i < 2; ++i) finish(out_[(next_out_ + i) % 2], executor);
}

void GpuTier::finish(Chunk& chunk, const Executor& executor) {
  if (chunk.rows == 0) return;
  chunk.filled.wait();
  std::atomic<size_t> behind{0};
  const size_t tasks = chunk.rows < kBlockRows ? 1 : std::min<size_t>(executor.threads(), 32);
  // Each task has its own partitions.
  executor.run(tasks, [&](size_t task) {
    size_t own = 0;
    for (size_t i = 0; i < chunk.rows; ++i) {
      const std::byte* const row = chunk.pinned.data() + i * stride();
      int64_t key;
      std::memcpy(&key, row, sizeof(key));
      const size_t number = table_->partition_number(key, mix64(static_cast<uint64_t>(key)));
      if (number % tasks != task) continue;
      Partition& partition = table_->partition(number);
      std::unique_lock lock(partition.mutex, std::defer_lock);
      if (table_->snapshot_open()) lock.lock();
      own += partition.write_back(chunk.places[i], row) ? 1 : 0;
    }
    behind += own;
  });
  written_back_ += behind;
  chunk.rows = 0;
}

Executor GpuTier::settlers() {
  if (threads_ == nullptr) {
    const size_t most = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostSettlers);
    const size_t wanted = table_->options().cache.settle_threads;
    threads_ = std::make_unique<Threads>(
        wanted != 0 ? wanted : std::min(most, slots() * stride() / kSettlerBytes + 1));
  }
  return Executor(threads_->executor());
}

size_t GpuTier::settle() {
  const OnDevice here(device_);
  const Executor executor = settlers();
  finish(executor);
  for (size_t first = 0; first < slots(); first += kPieceSlots) {
    settle_slots(first, std::min(kPieceSlots, slots() - first), executor);
  }
  finish(executor);
  return take_written_back();
}

void GpuTier::settle_ahead() {
  const size_t piece = std::min(kPieceSlots, 4 * chunk_rows());
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
    const Executor executor = settlers();
    settle_slots(first, std::min(piece, slots() - first), executor);
    finish(executor);
    table_->note_settled(take_written_back());
  }
}

void GpuTier::settle_slots(size_t first, size_t count, const Executor& executor) {
  const DeviceStream stream = out_stream_.get();
  begin(stream);
  const size_t wanted = device_cache_dirty_scratch(count);
  std::byte* scratch = nullptr;
  const DeviceDirty dirty = take_from(scratch_, [&](DeviceArena& arena) {
    scratch = arena.take<std::byte>(wanted);
    return DeviceDirty::take(arena, count);
  });
  pinned_.reserve((count + 1) * sizeof(uint32_t));
  auto* const answer = reinterpret_cast<uint32_t*>(pinned_.data());
  // All memory is there before the first row is called clean.
  reserve_out(count, executor);
  change_slots([&] {
    device_cache_dirty(cache_, first, count, dirty, scratch, wanted, stream);
    copy_async(answer, dirty.count, 1, stream);
    copy_async(answer + 1, dirty.places, count, stream);
    ready_.record(stream);
    ready_.wait();
    send_back({dirty.lines, nullptr, 0}, answer + 1, *answer, executor, stream);
  });
}

std::unique_lock<std::shared_mutex> GpuTier::lock_when_idle(DeviceStream stream,
                                                            DeviceEvent* idle) {
  return hotrow::lock_when_idle({this}, stream, idle, [&] { return table_->lock_beside_steps(); });
}

void GpuTier::clear() {
  const OnDevice here(device_);
  if (ahead_ != nullptr) ahead_->forget();
  change_slots([&] {
    for (Chunk& chunk : out_) {
      if (chunk.rows > 0) chunk.filled.wait();
      chunk.rows = 0;
    }
    hold(out_stream_.get());
    device_cache_clear(cache_, out_stream_.get());
    end_recorded(out_stream_.get());
  });
  lost_[0] = '\0';
}

void GpuTier::read_headers(const int64_t* keys, size_t count, RowHeader* headers) {
  const OnDevice here(device_);
  const DeviceStream stream = out_stream_.get();
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
  const DeviceStream stream = out_stream_.get();
  begin(stream);
  const auto take = [&](DeviceArena& arena) { return arena.take<int64_t>(count); };
  int64_t* const device = take_from(scratch_, take);
  int64_t* const host = take_from(pinned_, take);
  std::memcpy(host, keys, count * sizeof(int64_t));
  copy_async(device, host, count, stream);
  change_slots([&] {
    device_cache_drop(cache_, device, count, stream);
    if (ahead_ != nullptr) ahead_->leave_out_free(stream);
    end_recorded(stream);
    own_use_->wait();
  });
}

UpdateTotals GpuTier::take_updates() {
  const OnDevice here(device_);
  const DeviceStream stream = out_stream_.get();
  hold(stream);
  pinned_.reserve(2 * sizeof(uint64_t));
  auto* const counts = reinterpret_cast<uint64_t*>(pinned_.data());
  copy_async(counts, update_counts_, 2, stream);
  ready_.record(stream);
  ready_.wait();
  // The last that can fail: until then the next call finds the counts.
  upload(update_counts_, kNoUpdates, 2, stream);
  end(stream);
  return {counts[0], counts[1]};
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
  const DeviceStream stream = out_stream_.get();
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
