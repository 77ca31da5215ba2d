#include "core/sharded_table.h"

#include <cmath>
#include <mutex>

#include "core/status.h"

namespace hotrow {
namespace {

// The scratch memory of the calling thread.
struct Scratch {
  Dispatch dispatch;
  std::vector<float> grouped;
};

Scratch& scratch() {
  thread_local Scratch s;
  return s;
}

}  // namespace

ShardedTable::ShardedTable(std::string name, const TableOptions& options, int32_t shards,
                           bool hashed)
    : name_(std::move(name)), options_(options), hashed_(hashed) {
  if (options.width == 0)
    fail(Code::kInvalidArgument, "table %s: width 0; at least 1", name_.c_str());
  if (shards < 1)
    fail(Code::kInvalidArgument, "table %s: %d shards; at least 1", name_.c_str(), shards);
  for (int32_t s = 0; s < shards; ++s) shards_.emplace_back(options);
}

size_t ShardedTable::size() const {
  std::shared_lock lock(mutex_);
  size_t total = 0;
  for (const Table& shard : shards_) total += shard.size();
  return total;
}

size_t ShardedTable::bytes() const {
  std::shared_lock lock(mutex_);
  size_t total = 0;
  for (const Table& shard : shards_) total += shard.bytes();
  return total;
}

uint32_t ShardedTable::step() const {
  std::shared_lock lock(mutex_);
  return step_;
}

void ShardedTable::set_step(uint32_t step) {
  std::unique_lock lock(mutex_);
  step_ = step;
}

void ShardedTable::check_keys(const int64_t* keys, size_t count) const {
  if (options_.vocabulary_size < 0) return;
  for (size_t i = 0; i < count; ++i) {
    if (keys[i] < 0 || keys[i] >= options_.vocabulary_size) {
      fail(Code::kOutOfRange, "table %s: key %lld; its vocabulary_size allows [0, %lld)",
           name_.c_str(), static_cast<long long>(keys[i]),
           static_cast<long long>(options_.vocabulary_size));
    }
  }
}

size_t ShardedTable::read(const int64_t* keys, size_t count, float* rows) const {
  check_keys(keys, count);
  std::shared_lock lock(mutex_);
  if (shards_.size() == 1) return shards_[0].find(keys, count, rows);
  Scratch& s = scratch();
  s.dispatch.group(keys, count, static_cast<int32_t>(shards_.size()), hashed_);
  s.grouped.resize(count * width());
  size_t unknown = 0, first = 0;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    const size_t n = static_cast<size_t>(s.dispatch.counts()[shard]);
    unknown += shards_[shard].find(s.dispatch.grouped().data() + first, n,
                                   s.grouped.data() + first * width());
    first += n;
  }
  combine(s.grouped.data(), s.dispatch.order().data(), count, width(), rows);
  return unknown;
}

void ShardedTable::find_or_insert(const int64_t* keys, size_t count, float* rows) {
  check_keys(keys, count);
  std::unique_lock lock(mutex_);
  if (pending_ >= kMaxPending) {
    fail(Code::kFailedPrecondition,
         "table %s: the gradients of %lld backward passes were never applied; give all of the "
         "layer's trainable_variables to optimizer.apply_gradients",
         name_.c_str(), static_cast<long long>(pending_));
  }
  if (shards_.size() == 1) {
    shards_[0].find_or_insert(keys, count, rows);
    return;
  }
  Scratch& s = scratch();
  s.dispatch.group(keys, count, static_cast<int32_t>(shards_.size()), hashed_);
  s.grouped.resize(count * width());
  size_t first = 0;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    const size_t n = static_cast<size_t>(s.dispatch.counts()[shard]);
    shards_[shard].find_or_insert(s.dispatch.grouped().data() + first, n,
                                  s.grouped.data() + first * width());
    first += n;
  }
  combine(s.grouped.data(), s.dispatch.order().data(), count, width(), rows);
}

void ShardedTable::apply(const int64_t* keys, size_t count, const float* gradients, float scale) {
  ++step_;
  if (shards_.size() == 1) {
    shards_[0].update(keys, count, gradients, scale, step_);
    return;
  }
  Scratch& s = scratch();
  s.dispatch.group(keys, count, static_cast<int32_t>(shards_.size()), hashed_);
  s.grouped.resize(count * width());
  split(gradients, s.dispatch.order().data(), count, width(), s.grouped.data());
  size_t first = 0;
  for (size_t shard = 0; shard < shards_.size(); ++shard) {
    const size_t n = static_cast<size_t>(s.dispatch.counts()[shard]);
    shards_[shard].update(s.dispatch.grouped().data() + first, n,
                          s.grouped.data() + first * width(), scale, step_);
    first += n;
  }
}

void ShardedTable::accumulate(const int64_t* keys, size_t count, const float* gradients) {
  check_keys(keys, count);
  std::unique_lock lock(mutex_);
  for (size_t i = 0; i < count; ++i) {
    bool inserted = false;
    const size_t place = static_cast<size_t>(waiting_.find_or_insert(keys[i], &inserted));
    const float* g = gradients + i * width();
    if (inserted) {
      waiting_keys_.push_back(keys[i]);
      waiting_gradients_.insert(waiting_gradients_.end(), g, g + width());
    } else {
      float* sum = waiting_gradients_.data() + place * width();
      for (size_t j = 0; j < width(); ++j) sum[j] += g[j];
    }
  }
  ++pending_;
}

void ShardedTable::accumulate_and_commit(const int64_t* keys, size_t count,
                                         const float* gradients) {
  check_keys(keys, count);
  std::unique_lock lock(mutex_);
  if (committed_) {
    fail(Code::kFailedPrecondition,
         "table %s: a second backward pass in one step; the layer has update='backward', which "
         "takes one use a step and no gradient accumulation: set update='step'",
         name_.c_str());
  }
  apply(keys, count, gradients, 1.0f);
  committed_ = true;
}

void ShardedTable::commit(double witness) {
  // Negated so that NaN counts as "not applied".
  if (!(witness > 0.0)) return;
  std::unique_lock lock(mutex_);
  if (pending_ > 0) {
    const double scale = std::isinf(witness) ? 1.0 : witness / static_cast<double>(pending_);
    apply(waiting_keys_.data(), waiting_keys_.size(), waiting_gradients_.data(),
          static_cast<float>(scale));
    waiting_.clear();
    waiting_keys_.clear();
    waiting_gradients_.clear();
    pending_ = 0;
  }
  committed_ = false;
}

size_t ShardedTable::shard_size(size_t shard) const {
  std::shared_lock lock(mutex_);
  return shards_.at(shard).size();
}

void ShardedTable::export_rows(size_t shard, size_t first, size_t count, int64_t* keys,
                               float* lines, uint32_t* clocks) const {
  std::shared_lock lock(mutex_);
  shards_.at(shard).export_rows(first, count, keys, lines, clocks);
}

void ShardedTable::import_rows(const int64_t* keys, size_t count, const float* lines,
                               const uint32_t* clocks) {
  check_keys(keys, count);
  std::unique_lock lock(mutex_);
  if (shards_.size() == 1) {
    shards_[0].import_rows(keys, count, lines, clocks);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const int32_t owner = owner_of(keys[i], static_cast<int32_t>(shards_.size()), hashed_);
    shards_[static_cast<size_t>(owner)].import_rows(keys + i, 1, lines + i * line_width(),
                                                    clocks + i);
  }
}

void ShardedTable::digest(bool weights_only, uint64_t digest[2]) const {
  std::shared_lock lock(mutex_);
  digest[0] = digest[1] = 0;
  for (const Table& shard : shards_) shard.add_digest(weights_only, digest);
}

void ShardedTable::clear() {
  std::unique_lock lock(mutex_);
  for (Table& shard : shards_) shard.clear();
  waiting_.clear();
  waiting_keys_.clear();
  waiting_gradients_.clear();
  pending_ = 0;
  committed_ = false;
  step_ = 0;
}

}  // namespace hotrow
