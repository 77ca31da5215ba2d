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
    : name_(std::move(name)), options_(options), hashed_(hashed), passes_(kSlots) {
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
  if (since_commit_ >= kMaxWaiting) {
    fail(Code::kFailedPrecondition,
         "table %s: the gradients of %lld backward passes were never applied; give all of the "
         "layer's trainable_variables to optimizer.apply_gradients",
         name_.c_str(), static_cast<long long>(since_commit_));
  }
  // A step that was interrupted after its backward pass is over.
  committed_slot_ = kSlots;
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

size_t ShardedTable::next_slot() {
  std::unique_lock lock(mutex_);
  return next_slot_++ % kSlots;
}

void ShardedTable::accumulate(size_t slot, const int64_t* keys, size_t count,
                              const float* gradients) {
  check_keys(keys, count);
  std::unique_lock lock(mutex_);
  Pass& pass = passes_.at(slot);
  if (pass.waiting && micro_steps_ > 0) {
    fail(Code::kFailedPrecondition, "table %s: more than %zu backward passes in one step",
         name_.c_str(), kSlots);
  }
  pass.keys.assign(keys, keys + count);
  pass.gradients.assign(gradients, gradients + count * width());
  pass.waiting = true;
  ++since_commit_;
}

void ShardedTable::accumulate_and_commit(size_t slot, const int64_t* keys, size_t count,
                                         const float* gradients) {
  check_keys(keys, count);
  std::unique_lock lock(mutex_);
  if (committed_slot_ != kSlots) {
    fail(Code::kFailedPrecondition,
         "table %s: a second backward pass in one step; the layer has update='backward', which "
         "takes one use a step and no gradient accumulation: set update='step'",
         name_.c_str());
  }
  apply(keys, count, gradients, 1.0f);
  committed_slot_ = slot;
  ++since_commit_;
}

void ShardedTable::commit(const float* witness) {
  std::unique_lock lock(mutex_);
  bool unchanged = true, by_hand = true;
  for (size_t slot = 0; slot < kSlots; ++slot) {
    unchanged = unchanged && witness[slot] == kUnchanged;
    by_hand = by_hand && witness[slot] < 0.0f;
  }
  if (committed_slot_ != kSlots) {
    const size_t slot = std::exchange(committed_slot_, kSlots);
    since_commit_ = 0;
    const bool as_it_was = by_hand ? witness[slot] != kUnchanged : witness[slot] == kUnit;
    if (unchanged || !as_it_was) {
      fail(Code::kFailedPrecondition,
           "table %s: gradients were accumulated, scaled or clipped after the rows were updated; "
           "the layer has update='backward': set update='step'",
           name_.c_str());
    }
    return;
  }
  if (unchanged) {
    ++micro_steps_;
    return;
  }
  const float steps = static_cast<float>(micro_steps_ + 1);
  micro_steps_ = 0;
  since_commit_ = 0;
  taken_.clear();
  for (size_t i = 0; i < kSlots; ++i) {
    const size_t slot = (next_slot_ + i) % kSlots;  // the oldest pass first
    Pass& pass = passes_[slot];
    if (!pass.waiting) continue;
    const bool taken = by_hand ? witness[slot] != kUnchanged
                               : witness[slot] != 0.0f && std::isfinite(witness[slot]);
    if (!taken) continue;
    pass.waiting = false;
    taken_.emplace_back(slot, by_hand ? 1.0f : witness[slot] / kUnit / steps);
  }
  if (taken_.empty()) return;
  if (taken_.size() == 1) {
    const Pass& pass = passes_[taken_[0].first];
    apply(pass.keys.data(), pass.keys.size(), pass.gradients.data(), taken_[0].second);
    return;
  }
  sum_index_.clear();
  sum_keys_.clear();
  sum_.clear();
  for (const auto& [slot, factor] : taken_) {
    const Pass& pass = passes_[slot];
    for (size_t i = 0; i < pass.keys.size(); ++i) {
      bool inserted = false;
      const size_t place = static_cast<size_t>(sum_index_.find_or_insert(pass.keys[i], &inserted));
      if (inserted) {
        sum_keys_.push_back(pass.keys[i]);
        sum_.resize(sum_.size() + width(), 0.0f);
      }
      const float* g = pass.gradients.data() + i * width();
      float* sum = sum_.data() + place * width();
      for (size_t j = 0; j < width(); ++j) sum[j] += factor * g[j];
    }
  }
  apply(sum_keys_.data(), sum_keys_.size(), sum_.data(), 1.0f);
}

void ShardedTable::update(const int64_t* keys, size_t count, const float* gradients) {
  check_keys(keys, count);
  std::unique_lock lock(mutex_);
  apply(keys, count, gradients, 1.0f);
}

void ShardedTable::forget_passes() {
  for (Pass& pass : passes_) pass.waiting = false;
  since_commit_ = micro_steps_ = 0;
  committed_slot_ = kSlots;
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
  forget_passes();
  step_ = 0;
}

}  // namespace hotrow
