#include "core/look_ahead.h"

#include <algorithm>
#include <cstring>

#include "core/batch_rows.h"
#include "core/host_search.h"
#include "core/table.h"

namespace hotrow {
namespace {

// Distinct keys planned in one hold of the table's lock: below a millisecond.
constexpr size_t kPieceKeys = 8192;
// Lines read between two reports of progress.
constexpr size_t kReport = 256;
// What a step reads at least that finds a line unread.
constexpr size_t kAtOnce = 4096;
constexpr size_t kMostWaiting = 2;

}  // namespace

LookAhead::LookAhead(Table& table) : table_(&table), thread_([this] { run(); }) {}

LookAhead::~LookAhead() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LookAhead::add(const int64_t* keys, size_t count) {
  {
    std::lock_guard lock(mutex_);
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
    if (waiting_.size() == kMostWaiting) waiting_.pop_front();
    waiting_.emplace_back(keys, keys + count);
  }
  changed_.notify_all();
}

void LookAhead::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty() && !busy_; });
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

void LookAhead::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const std::vector<int64_t> keys = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      bring_in(keys);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    if (error != nullptr) error_ = error;
    changed_.notify_all();
  }
}

void LookAhead::bring_in(const std::vector<int64_t>& keys) {
  unique_.run(keys.data(), keys.size());
  uint64_t voided;
  {
    const auto lock = table_->lock_beside_steps();
    finish_loading();
    clear_loads();
    while (windows_.size() >= 2) {
      for (uint32_t slot : windows_.front()) table_->cache()->unpin(slot);
      windows_.pop_front();
    }
    windows_.emplace_back();
    voided = voided_;
  }
  for (size_t first = 0; first < unique_.size(); first += kPieceKeys) {
    if (stopping()) return;
    const auto lock = table_->lock_beside_steps();
    if (voided_ != voided) return;
    plan(first, std::min(unique_.size(), first + kPieceKeys));
  }
  read_to(SIZE_MAX);
  const auto lock = table_->lock_beside_steps();
  finish_loading();
  if (read_error_ != nullptr) std::rethrow_exception(std::exchange(read_error_, nullptr));
}

bool LookAhead::stopping() {
  std::lock_guard lock(mutex_);
  return stop_;
}

void LookAhead::plan(size_t first, size_t last) {
  RowCache& cache = *table_->cache();
  const int64_t* keys = unique_.keys() + first;
  const uint64_t* hashes = unique_.hashes() + first;
  std::vector<uint32_t>& pinned = windows_.back();
  missing_.clear();
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
          cache.pin(slot);
          pinned.push_back(slot);
        }
      });
  CacheCounts counts;
  const LineLog* const log = table_->shape().log.get();
  // Victims are written back, which a snapshot must know of.
  const GroupLock lock(*table_, 0, 1);
  search_host(*table_, keys, hashes, missing_.data(), missing_.size(),
              [&](size_t u, Partition& partition) {
                const uint32_t place = partition.find(hashes[u], keys[u]);
                if (place == Partition::kAbsent) return;
                const std::byte* const beside = partition.bypass.find(place);
                // Of a row that a lookup created and then failed to bring in, there is no line yet.
                if (log != nullptr && beside == nullptr &&
                    !log->has(static_cast<uint32_t>(partition.number()), place)) {
                  return;
                }
                const uint32_t slot = cache.choose(hashes[u], RowCache::Admit::kAlways);
                if (slot == RowCache::kNone) return;
                if (cache.used(slot)) table_->give_up(slot, &counts);
                ++counts.ahead;
                if (beside != nullptr) {
                  // In memory for a lookup, and newer than on disk.
                  cache.put(slot, hashes[u], keys[u], place);
                  std::memcpy(cache.line(slot), beside, table_->shape().stride);
                  cache.set_dirty(slot, true);
                  partition.bypass.remove(place);
                } else {
                  cache.put_loading(slot, hashes[u], partition.header(place),
                                    static_cast<uint32_t>(loads_.size()));
                  loads_.push_back({slot, static_cast<uint32_t>(partition.number()), place, false,
                                    partition.at(place) + sizeof(RowHeader),
                                    cache.line(slot) + sizeof(RowHeader)});
                }
                cache.pin(slot);
                pinned.push_back(slot);
              });
  table_->note_cached(counts);
}

void LookAhead::read_to(size_t end) {
  std::unique_lock lock(progress_);
  // To the end means also that nobody is at it any more.
  while (loaded_ < std::min(end, loads_.size()) || (reading_ && end > loads_.size())) {
    if (reading_) {
      progressed_.wait(lock);
      continue;
    }
    // Nobody plans meanwhile: the mover reads, or a step does in the table's lock.
    reading_ = true;
    const size_t first = loaded_;
    const size_t last =
        end > loads_.size() ? loads_.size() : std::min(loads_.size(), end + kAtOnce);
    lock.unlock();
    std::exception_ptr error;
    try {
      read(first, last);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    reading_ = false;
    if (error != nullptr) {
      failed_from_ = std::min(failed_from_, loaded_);
      read_error_ = error;
    }
    loaded_ = last;
    progressed_.notify_all();
  }
}

void LookAhead::read(size_t first, size_t last) {
  const LineLog* log = table_->shape().log.get();
  if (log != nullptr) {
    std::vector<LineLog::Read> reads;
    reads.reserve(last - first);
    for (size_t i = first; i < last; ++i) {
      reads.push_back({loads_[i].partition, loads_[i].place, loads_[i].to});
    }
    size_t reported = 0;
    log->read(reads.data(), reads.size(), [&](size_t read) {
      if (read < reported + kReport) return;
      reported = read;
      report(first + read);
    });
    return;
  }
  const size_t bytes = table_->line_bytes();
  for (size_t i = first; i < last; ++i) {
    std::memcpy(loads_[i].to, loads_[i].from, bytes);
    if ((i + 1) % kReport == 0) report(i + 1);
  }
}

void LookAhead::report(size_t loaded) {
  {
    std::lock_guard lock(progress_);
    loaded_ = loaded;
  }
  progressed_.notify_all();
}

bool LookAhead::wait_for(uint32_t slot) {
  const size_t number = table_->cache()->place(slot);
  read_to(number + 1);
  return open(&loads_[number]);
}

bool LookAhead::open(Load* load) {
  const bool there = static_cast<size_t>(load - loads_.data()) < failed_from_;
  if (there) {
    table_->cache()->open(load->slot, load->place);
  } else {
    table_->cache()->release(load->slot);
  }
  load->open = true;
  return there;
}

void LookAhead::finish_loading() {
  read_to(SIZE_MAX);
  for (Load& load : loads_) {
    if (!load.open) open(&load);
  }
}

void LookAhead::clear_loads() {
  std::lock_guard lock(progress_);
  loads_.clear();
  loaded_ = 0;
  failed_from_ = SIZE_MAX;
}

void LookAhead::forget() {
  ++voided_;
  clear_loads();
  for (auto& pinned : windows_) pinned.clear();
}

}  // namespace hotrow
