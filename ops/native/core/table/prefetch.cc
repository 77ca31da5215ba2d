#include "core/table/prefetch.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/base/hash.h"
#include "core/base/room.h"
#include "core/table/batch_rows.h"
#include "core/table/host_search.h"
#include "core/table/ram_tier.h"
#include "core/table/table.h"

namespace hotrow {
namespace {

// Keys looked up, or pins released, while the table's lock is held once: below a millisecond.
constexpr size_t kPieceKeys = 8192;
// Recent keys that are recognized as repetitions: their hashes fit the L2 cache.
constexpr size_t kRecent = 32768;
// Lines read in one request, and between two reports of progress.
constexpr size_t kRequest = 16384, kReport = 256;
constexpr auto kRetry = std::chrono::milliseconds(1);

}  // namespace

Prefetch::Prefetch(Table& table, RamTier& tier)
    : table_(&table),
      tier_(&tier),
      cache_(&tier.cache()),
      request_(kRequest),
      reader_([this] { run_reader(); }),
      queue_([this](const std::vector<int64_t>& keys) { bring_in(keys); }) {}

Prefetch::~Prefetch() {
  queue_.stop();
  {
    std::lock_guard lock(progress_);
    stop_reading_ = true;
  }
  progressed_.notify_all();
  reader_.join();
}

void Prefetch::wait() {
  queue_.wait();
  {
    std::unique_lock lock(progress_);
    progressed_.wait(lock, [&] { return loaded_ == looked_up(); });
    if (read_error_ != nullptr) std::rethrow_exception(std::exchange(read_error_, nullptr));
  }
  const auto lock = table_->lock_beside_steps();
  open_loaded();
}

// --- looking up ---------------------------------------------------------------------------------

void Prefetch::bring_in(const std::vector<int64_t>& keys) {
  take_in(keys);
  uint64_t voided;
  for (bool ready = false; !ready;) {
    if (queue_.stopping()) return;
    const auto lock = table_->lock_beside_steps();
    open_loaded();
    ready = windows_.size() < 2;
    if (ready) {
      windows_.push_back(
          {next_window_++ % 2 == 0 ? RowCache::kEvenWindow : RowCache::kOddWindow, {}});
    } else {
      let_go(kPieceKeys);
    }
    voided = voided_;
  }
  for (size_t first = 0; first < kept_; first += kPieceKeys) {
    if (queue_.stopping()) return;
    const auto lock = table_->lock_beside_steps();
    if (voided_ != voided) return;
    open_loaded();
    look_up(first, std::min(kept_, first + kPieceKeys));
  }
  std::lock_guard lock(progress_);
  if (read_error_ != nullptr) std::rethrow_exception(std::exchange(read_error_, nullptr));
}

void Prefetch::take_in(const std::vector<int64_t>& keys) {
  // At first no hash is at the index that is searched for it.
  recent_.resize(kRecent);
  for (size_t i = 0; i < kRecent; ++i) recent_[i] = i ^ 1;
  keys_.resize(std::max(keys_.size(), keys.size()));
  hashes_.resize(keys_.size());
  size_t kept = 0;
  for (const int64_t key : keys) {
    const uint64_t hash = mix64(static_cast<uint64_t>(key));
    uint64_t& recent = recent_[hash % kRecent];
    keys_[kept] = key;
    hashes_[kept] = hash;
    kept += recent != hash ? 1 : 0;
    recent = hash;
  }
  kept_ = kept;
}

void Prefetch::look_up(size_t first, size_t last) {
  RowCache& cache = *cache_;
  const int64_t* keys = keys_.data() + first;
  const uint64_t* hashes = hashes_.data() + first;
  Window& window = windows_.back();
  const auto keep = [&](uint32_t slot) {
    cache.pin(slot, window.pin);
    window.slots.push_back(slot);
  };
  missing_.clear();
  fresh_.clear();
  // A row that has a slot is read: nothing between the two fails.
  make_room(missing_, last - first);
  make_room(fresh_, last - first);
  make_room(window.slots, last - first);
  in_blocks(
      last - first, [&](size_t u) __attribute__((always_inline)) { fetch(cache.home(hashes[u])); },
      [&](size_t u) __attribute__((always_inline)) {
        const uint32_t slot = cache.likely(hashes[u]);
        if (slot != RowCache::kNone) fetch(cache.line(slot));
      },
      [&](size_t u) {
        const uint32_t slot = cache.find(hashes[u], keys[u]);
        if (slot == RowCache::kNone) {
          missing_.push_back(static_cast<uint32_t>(u));
        } else {
          keep(slot);
        }
      });
  CacheCounts counts;
  const LineLog* const log = table_->shape().log.get();
  // Evicted rows are written back, so an open snapshot must copy them first.
  const GroupLock lock(*table_, 0, 1);
  std::exception_ptr error;
  try {
    search_host(*table_, keys, hashes, missing_.data(), missing_.size(),
                [&](size_t u, Partition& partition) {
                  // The key may be twice in the piece.
                  if (cache.find(hashes[u], keys[u]) != RowCache::kNone) return;
                  const uint32_t place = partition.find(hashes[u], keys[u]);
                  if (place == Partition::kAbsent) return;
                  const std::byte* const beside = partition.bypass.find(place);
                  // A row that a lookup created and then failed to bring in has no line yet.
                  if (log != nullptr && beside == nullptr &&
                      !log->has(static_cast<uint32_t>(partition.number()), place)) {
                    return;
                  }
                  const uint32_t slot = cache.choose(hashes[u], RowCache::Admit::kAlways);
                  if (slot == RowCache::kNone) return;
                  if (cache.used(slot)) tier_->evict(slot, &counts);
                  ++counts.prefetched;
                  if (beside != nullptr) {
                    // The row is in memory for a lookup, and newer than on disk.
                    cache.put(slot, hashes[u], keys[u], place);
                    std::memcpy(cache.line(slot), beside, table_->shape().stride);
                    cache.set_dirty(slot, true);
                    partition.bypass.remove(place);
                  } else {
                    cache.put_loading(slot, hashes[u], partition.header(place),
                                      static_cast<uint32_t>(looked_up() + fresh_.size()));
                    fresh_.push_back({slot, static_cast<uint32_t>(partition.number()), place, false,
                                      false, partition.at(place) + sizeof(RowHeader),
                                      cache.line(slot) + sizeof(RowHeader)});
                  }
                  keep(slot);
                });
  } catch (...) {
    error = std::current_exception();
  }
  table_->note_cached(counts);
  queue_fresh();
  // Rows that got a slot are loaded all the same.
  if (error != nullptr) std::rethrow_exception(error);
}

void Prefetch::queue_fresh() {
  {
    std::lock_guard progress(progress_);
    try {
      loads_.insert(loads_.end(), fresh_.begin(), fresh_.end());
    } catch (...) {
      for (const Load& load : fresh_) cache_->release(load.slot);
      throw;
    }
  }
  progressed_.notify_all();
}

// --- reading ------------------------------------------------------------------------------------

void Prefetch::run_reader() {
  std::unique_lock lock(progress_);
  for (;;) {
    progressed_.wait(lock, [&] { return stop_reading_ || loaded_ < looked_up(); });
    if (stop_reading_) return;
    const uint64_t first = loaded_;
    const auto begin = loads_.begin() + static_cast<ptrdiff_t>(first - first_);
    const size_t count = std::min<size_t>(looked_up() - first, kRequest);
    request_.assign(begin, begin + static_cast<ptrdiff_t>(count));
    lock.unlock();
    std::exception_ptr error;
    try {
      read(request_, [&](size_t there) {
        {
          std::lock_guard progress(progress_);
          loaded_ = first + there;
        }
        progressed_.notify_all();
      });
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error != nullptr) {
      read_error_ = error;
      for (uint64_t i = loaded_; i < first + count; ++i) loads_[i - first_].failed = true;
    }
    loaded_ = first + count;
    progressed_.notify_all();
    // When there is nothing to read, this thread opens slots. It never waits for the table's lock:
    // the thread that holds it may wait for a line that is looked up meanwhile.
    const auto more = [&] { return loaded_ < looked_up() || stop_reading_; };
    while (!more() && first_ < loaded_) {
      lock.unlock();
      if (const std::unique_lock table_lock(table_->mutex(), std::try_to_lock);
          table_lock.owns_lock()) {
        open_loaded();
      }
      lock.lock();
      if (first_ < loaded_) progressed_.wait_for(lock, kRetry, more);
    }
  }
}

template <typename Report>
void Prefetch::read(const std::vector<Load>& loads, Report&& report) const {
  size_t reported = 0;
  const auto there = [&](size_t count) {
    if (count < reported + kReport) return;
    reported = count;
    report(count);
  };
  if (const LineLog* log = table_->shape().log.get()) {
    std::vector<LineLog::Read> reads;
    reads.reserve(loads.size());
    for (const Load& load : loads) reads.push_back({load.partition, load.place, load.to});
    log->read(reads.data(), reads.size(), there);
    return;
  }
  const size_t bytes = table_->line_bytes();
  for (size_t i = 0; i < loads.size(); ++i) {
    std::memcpy(loads[i].to, loads[i].from, bytes);
    there(i + 1);
  }
}

// --- in the table's lock ------------------------------------------------------------------------

bool Prefetch::wait_for(uint32_t slot) {
  // Tickets are numbers of 32 bits; the tickets of loads that are not open are near each other.
  const uint32_t index = cache_->place(slot) - static_cast<uint32_t>(first_);
  {
    std::unique_lock lock(progress_);
    progressed_.wait(lock, [&] { return loaded_ > first_ + index; });
  }
  return open(&loads_[index]);
}

bool Prefetch::open(Load* load) {
  if (load->failed) {
    cache_->release(load->slot);
  } else {
    cache_->open(load->slot, load->place);
  }
  load->open = true;
  return !load->failed;
}

void Prefetch::open_loaded() {
  std::lock_guard lock(progress_);
  while (first_ < loaded_) {
    if (!loads_.front().open) open(&loads_.front());
    loads_.pop_front();
    ++first_;
  }
}

void Prefetch::finish_loading() {
  {
    std::unique_lock lock(progress_);
    progressed_.wait(lock, [&] { return loaded_ == looked_up(); });
  }
  open_loaded();
}

void Prefetch::let_go(size_t most) {
  Window& oldest = windows_.front();
  const size_t left = oldest.slots.size() - std::min(most, oldest.slots.size());
  cache_->unpin(oldest.slots.data() + left, oldest.slots.size() - left, oldest.pin);
  oldest.slots.resize(left);
  if (left == 0) windows_.pop_front();
}

void Prefetch::let_go_of_all() {
  ++voided_;
  while (!windows_.empty()) let_go(kPieceKeys);
}

void Prefetch::forget() {
  ++voided_;
  windows_.clear();
}

}  // namespace hotrow
