#include "core/table/table.h"

#include <farmhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/table/batch_rows.h"
#include "core/table/device_tier.h"
#include "core/table/ram_tier.h"
#include "core/table/replica_cache.h"
#include "core/table/snapshot.h"

namespace hotrow {

void NoTier::read_headers(const int64_t* keys, size_t count, RowHeader* headers) {
  for (size_t i = 0; i < count; ++i) headers[i] = {keys[i], Partition::kFree, 0};
}

namespace {

// sqrt(1 - beta_2^t) / (1 - beta_1^t), until it is 1 in float32.
std::vector<float> adam_corrections(const Optimizer& optimizer) {
  std::vector<float> corrections;
  if (optimizer.kind != OptimizerKind::kAdam) return corrections;
  constexpr size_t kMost = size_t{1} << 20;
  double power_1 = 1.0, power_2 = 1.0;
  corrections.push_back(1.0f);  // t = 0 is not used
  while (corrections.size() < kMost) {
    power_1 *= optimizer.beta_1;
    power_2 *= optimizer.beta_2;
    corrections.push_back(static_cast<float>(std::sqrt(1.0 - power_2) / (1.0 - power_1)));
    if (power_1 < 1e-9 && power_2 < 1e-9) break;
  }
  return corrections;
}

}  // namespace

Table::Table(std::string name, const TableOptions& options, int32_t shards, bool hashed,
             Sharding sharding)
    : passes(name),
      name_(std::move(name)),
      shape_(options),
      shards_(static_cast<size_t>(std::max(shards, 1))),
      hashed_(hashed),
      sharding_(std::move(sharding)),
      corrections_(adam_corrections(options.optimizer)) {
  if (sharding_.ranks == nullptr) sharding_.width = options.width;
  check_sharding();
  if (options.width == 0)
    fail(Code::kInvalidArgument, "table %s: width 0; at least 1", name_.c_str());
  if (shards < 1)
    fail(Code::kInvalidArgument, "table %s: %d shards; at least 1", name_.c_str(), shards);
  if (options.expiry.sweep_steps == 0)
    fail(Code::kInvalidArgument, "table %s: sweep_steps 0; at least 1", name_.c_str());
  if (!options.disk.empty()) {
    if (options.cache.rows == 0 || on_gpu()) {
      fail(Code::kInvalidArgument, "table %s: rows on disk need a cache in RAM of at least 1 row",
           name_.c_str());
    }
    shape_.log = std::make_unique<LineLog>(options.disk, line_bytes(), shards_ * kPartitions);
  }
  default_line_.resize(shape_.stride);
  const std::vector<float> values(options.width, options.default_value);
  shape_.kernels->initialize(shape_.layout, options.optimizer, values.data(), default_line_.data());
  // The header of no key's row, not of key 0 either.
  const RowHeader no_row{0, Partition::kFree, 0};
  std::memcpy(default_line_.data(), &no_row, sizeof(no_row));
  make_partitions();
  if (sharding_.ranks != nullptr && sharding_.staleness.any()) {
    stale_ = std::make_unique<StaleState>(shape_.layout, sharding_.staleness, sharding_.size());
  }
  make_tier();
}

Table::~Table() {
  session.reset();  // waits for rows on their way, which use all members
}

void Table::forget_old_rows() {
  ++epoch_;
  if (stale_ != nullptr) stale_->clear();
}

void Table::check_sharding() const {
  if (sharding_.ranks == nullptr) return;
  if (!on_gpu()) return;
  if (sharding_.staleness.any()) {
    fail(Code::kUnimplemented,
         "table %s: staleness with a cache on a GPU is not built yet; use staleness 0, or "
         "device: cpu",
         name_.c_str());
  }
}

void Table::make_partitions() {
  partitions_.clear();
  const size_t count = shards_ * kPartitions;
  for (size_t p = 0; p < count; ++p) partitions_.emplace_back(shape_, memory_, count, p);
}

void Table::make_tier() {
  if (options().cache.rows == 0) {
    tier_ = std::make_unique<NoTier>();
  } else if (on_gpu()) {
    tier_ = make_gpu_tier(*this);
  } else {
    auto tier = std::make_unique<RamTier>(*this);
    ram_tier_ = tier.get();
    tier_ = std::move(tier);
  }
}

size_t Table::size() const {
  std::shared_lock lock(mutex_);
  size_t total = 0;
  for (const Partition& partition : partitions_) total += partition.size();
  return total;
}

size_t Table::bytes() const {
  std::shared_lock lock(mutex_);
  size_t total = memory_.bytes() + tier_->bytes();
  for (const Partition& partition : partitions_) {
    const auto beside_reader = lock_beside_snapshot(partition);
    total += partition.bytes();
  }
  if (shape_.log != nullptr) total += shape_.log->bytes();
  return total;
}

uint32_t Table::step() const {
  std::shared_lock lock(mutex_);
  return step_;
}

void Table::set_step(uint32_t step) {
  std::unique_lock lock(mutex_);
  step_ = step;
  for (Partition& partition : partitions_) partition.tombstones.bound_forgotten(step);
}

float Table::default_value() const {
  std::vector<float> values(width());
  const std::byte* line = default_line();
  shape_.kernels->gather(shape_.layout, &line, 1, values.data());
  return values[0];
}

void Table::check_keys(const int64_t* keys, size_t count) const {
  const int64_t size = options().vocabulary_size;
  if (size < 0) return;
  for (size_t i = 0; i < count; ++i) {
    if (keys[i] < 0 || keys[i] >= size) {
      fail(Code::kOutOfRange, "table %s: key %lld; its vocabulary_size allows [0, %lld)",
           name_.c_str(), static_cast<long long>(keys[i]), static_cast<long long>(size));
    }
  }
}

uint64_t Table::most_places() const {
  return std::min<uint64_t>(machine_memory() / shape_.host_stride, Partition::kAbsent / 2);
}

void Table::check_no_snapshot(const char* what) const {
  if (snapshot_open()) {
    fail(Code::kFailedPrecondition, "table %s: cannot %s while a snapshot is open; close it first",
         name_.c_str(), what);
  }
}

// --- rows outside of steps ----------------------------------------------------------------------

size_t Table::export_rows(uint64_t cursor, size_t count, const RowArrays& out,
                          uint64_t* next) const {
  const auto lock = lock_settled();
  size_t number = cursor >> 32;
  if (number >= partitions_.size()) {
    fail(Code::kOutOfRange, "cursor %llu is not one that export_rows gave",
         static_cast<unsigned long long>(cursor));
  }
  size_t place = cursor & 0xffffffffu;
  const size_t written = partitions_[number].export_rows(place, count, out, &place);
  if (place >= partitions_[number].places()) {
    place = 0;
    while (++number < partitions_.size() && partitions_[number].size() == 0) {
    }
  }
  *next = number == partitions_.size() ? kEnd : (uint64_t{number} << 32) | place;
  return written;
}

void Table::import_rows(const int64_t* keys, size_t count, const std::byte* lines,
                        const uint32_t* clocks, const uint32_t* counts, const uint32_t* places) {
  check_keys(keys, count);
  tier_->settle_ahead();
  std::unique_lock lock(mutex_);
  check_no_snapshot("import rows");
  for (size_t i = 0; i < count; ++i) {
    if (clocks[i] == Partition::kFree) {
      fail(Code::kInvalidArgument, "table %s: clock %u of key %lld; at most 4294967294",
           name_.c_str(), clocks[i], static_cast<long long>(keys[i]));
    }
    // A place beyond this machine's memory means that the data are damaged.
    if (places != nullptr && places[i] >= most_places()) {
      fail(Code::kInvalidArgument, "table %s: place %u of key %lld; below %llu on this machine",
           name_.c_str(), places[i], static_cast<long long>(keys[i]),
           static_cast<unsigned long long>(most_places()));
    }
  }
  empty_cache();
  forget_old_rows();
  for (size_t i = 0; i < count; ++i) {
    const uint64_t hash = mix64(static_cast<uint64_t>(keys[i]));
    partitions_[partition_number(keys[i], hash)].put(
        keys[i], lines + i * line_bytes(), clocks[i], counts[i],
        places == nullptr ? Partition::kAbsent : places[i]);
  }
}

size_t Table::remove_rows(const int64_t* keys, size_t count) {
  tier_->settle_ahead();
  std::unique_lock lock(mutex_);
  return remove_in_lock(keys, count, false);
}

size_t Table::bury_rows(const int64_t* keys, size_t count) {
  tier_->settle_ahead();
  std::unique_lock lock(mutex_);
  const size_t removed = remove_in_lock(keys, count, true);
  bound_tombstones();
  return removed;
}

size_t Table::remove_in_lock(const int64_t* keys, size_t count, bool bury) {
  check_no_snapshot("remove rows");
  empty_cache();
  forget_old_rows();
  size_t removed = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t hash = mix64(static_cast<uint64_t>(keys[i]));
    Partition& partition = partitions_[partition_number(keys[i], hash)];
    const uint32_t place = partition.find(hash, keys[i]);
    if (place == Partition::kAbsent) continue;
    if (bury) partition.tombstones.reserve(1);
    partition.remove(place);
    if (bury) partition.tombstones.record(keys[i], step_ + 1);
    ++removed;
  }
  return removed;
}

void Table::digest(bool weights_only, uint64_t digest[2]) const {
  const auto lock = lock_settled();
  digest[0] = digest[1] = 0;
  for (const Partition& partition : partitions_) partition.add_digest(weights_only, digest);
}

void Table::clear() {
  std::unique_lock lock(mutex_);
  check_no_snapshot("clear it");
  passes.forget();
  tier_->clear();
  for (Partition& partition : partitions_) partition.clear();
  memory_.clear();
  if (shape_.log != nullptr) shape_.log->clear();
  forget_old_rows();
  step_ = 0;
  tier_->take_updates();
  lookups_ = updates_ = nonfinite_updates_ = 0;
  cache_counts_ = {};
}

Table::Statistics Table::statistics() const {
  take_updates();
  Statistics s{};
  s.bytes = bytes();
  std::shared_lock lock(mutex_);
  s.lookups = lookups_;
  s.updates = updates_;
  s.nonfinite_updates = nonfinite_updates_;
  s.cache_slots = tier_->slots();
  s.cache = cache_counts_;
  if (shape_.log != nullptr) {
    const LineLog::Statistics disk = shape_.log->statistics();
    s.disk_bytes = disk.file_bytes;
    s.disk_lines_read = disk.lines_read;
    s.disk_lines_written = disk.lines_written;
  }
  for (const Partition& partition : partitions_) {
    s.rows += partition.size();
    s.admitted += partition.totals.admitted;
    s.refused += partition.totals.refused;
    s.expired += partition.totals.expired;
    s.tombstones += partition.tombstones.size();
    s.tombstones_dropped = tombstones_dropped_;
    if (partition.admission() != nullptr) s.waiting += partition.admission()->waiting();
  }
  return s;
}

void Table::keep_tombstones() {
  std::unique_lock lock(mutex_);
  for (Partition& partition : partitions_) {
    // Rows that were removed since the last step: an export of this step does not have them.
    if (!partition.tombstones.kept()) partition.tombstones.bound_forgotten(step_);
    partition.tombstones.keep();
  }
}

void Table::tombstones(std::vector<int64_t>* keys, std::vector<uint32_t>* steps) const {
  std::shared_lock lock(mutex_);
  std::vector<std::pair<int64_t, uint32_t>> all;
  for (const Partition& partition : partitions_) {
    partition.tombstones.each([&](int64_t key, uint32_t step) { all.emplace_back(key, step); });
  }
  std::sort(all.begin(), all.end());
  for (const auto& [key, step] : all) {
    keys->push_back(key);
    steps->push_back(step);
  }
}

void Table::forget_tombstones(uint32_t up_to_step) {
  std::unique_lock lock(mutex_);
  const uint32_t step = std::min(up_to_step, step_);
  for (Partition& partition : partitions_) partition.tombstones.forget(step);
}

uint32_t Table::forgotten_step() const {
  std::shared_lock lock(mutex_);
  return forgotten_in_lock();
}

uint32_t Table::forgotten_in_lock() const {
  uint32_t forgotten = 0;
  for (const Partition& partition : partitions_) {
    forgotten = std::max(forgotten, partition.tombstones.forgotten());
  }
  return forgotten;
}

void Table::bound_tombstones() {
  const size_t most = options().expiry.tombstones;
  size_t count = 0;
  for (const Partition& partition : partitions_) count += partition.tombstones.size();
  if (count == 0) return;
  const uint32_t forgotten = forgotten_in_lock();
  if (!partitions_[0].tombstones.kept() && forgotten >= step_) {
    // A restored table whose keys expire unrecorded: earlier tombstones are of no use.
    for (Partition& partition : partitions_) partition.tombstones.forget(forgotten);
    return;
  }
  if (count <= most) return;
  std::vector<uint32_t> steps;
  steps.reserve(count);
  for (const Partition& partition : partitions_) {
    partition.tombstones.each([&](int64_t, uint32_t step) { steps.push_back(step); });
  }
  const auto last = steps.begin() + static_cast<ptrdiff_t>(count - most / 2 - 1);
  std::nth_element(steps.begin(), last, steps.end());
  for (Partition& partition : partitions_) {
    partition.tombstones.forget(*last);
    count -= partition.tombstones.size();
  }
  tombstones_dropped_ += count;
}

std::unique_ptr<Snapshot> Table::open_snapshot(Since since,
                                               std::shared_ptr<SnapshotBudget> budget) {
  tier_->settle_ahead();
  std::unique_lock lock(mutex_);
  Snapshot*& open = snapshots_[number_of(kind_of(since))];
  if (open != nullptr) {
    fail(Code::kFailedPrecondition,
         "table %s: a snapshot for %s is open already; close it before another one", name_.c_str(),
         since == Since::kPublish ? "publishing" : "a checkpoint");
  }
  if (since == Since::kPublish) check_publishing();
  settle_in_lock();
  take_updates_in_lock();
  if (budget == nullptr) budget = std::make_shared<SnapshotBudget>(when_spent(since));
  auto snapshot = std::make_unique<Snapshot>(*this, since, std::move(budget));
  open = snapshot.get();
  return snapshot;
}

// --- steps --------------------------------------------------------------------------------------

UpdateStep Table::prepare_update(float learning_rate, float scale) {
  wait_for_snapshot();
  if (step_ >= Partition::kFree - 2) {
    fail(Code::kResourceExhausted, "table %s: 2^32 - 2 steps are the most", name_.c_str());
  }
  UpdateStep step = step_settings();
  if (!std::isnan(learning_rate)) step.learning_rate = learning_rate;
  step.scale = scale;
  step.clock = step_ + 1;
  return step;
}

UpdateStep Table::step_settings() const {
  UpdateStep step;
  step.optimizer = options().optimizer;
  step.layout = shape_.layout;
  step.learning_rate = step.optimizer.learning_rate;
  step.seed = combine64(options().init.seed, options().init.table);
  step.corrections = corrections_.data();
  step.corrections_count = corrections_.size();
  if (sharding_.scheme == Scheme::kColumn) {
    step.first_column = sharding_.first_column(sharding_.rank());
    step.whole_width = sharding_.width;
  }
  return step;
}

void Table::prepare_sweep(size_t first, size_t stride, uint32_t step) {
  if (!options().expiry.any()) return;
  Sweep& sweep = sweeps_[first];
  sweep.rows.clear();
  sweep.keys.clear();
  for (size_t p = first; p < partitions_.size(); p += stride) {
    Partition& partition = partitions_[p];
    const auto lock = lock_beside_snapshot(partition);
    partition.prepare_sweep(step);
    for (const uint32_t place : partition.swept()) {
      sweep.rows.emplace_back(&partition, place);
      sweep.keys.push_back(partition.header(place).key);
    }
  }
  sweep.newest.resize(sweep.keys.size());
  sweep.in_slots.clear();
  sweep.in_slots.reserve(sweep.keys.size());
}

void Table::sweep(size_t first, size_t stride) {
  if (!options().expiry.any()) return;
  auto& [rows, keys, in_slots, newest] = sweeps_[first];
  // Rows in slots are newer.
  if (!keys.empty()) tier_->read_headers(keys.data(), keys.size(), newest.data());
  size_t expired = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto [partition, place] = rows[i];
    const bool in_slot = newest[i].clock != Partition::kFree;
    if (!partition->expired(in_slot ? newest[i] : partition->newest_header(place), step_)) continue;
    rows[expired++] = rows[i];
    if (in_slot) in_slots.push_back(keys[i]);
  }
  tier_->drop(in_slots.data(), in_slots.size());
  for (size_t i = 0; i < expired; ++i) {
    const auto [partition, place] = rows[i];
    const auto lock = lock_beside_snapshot(*partition);
    partition->expire(place, step_);
  }
  for (size_t p = first; p < partitions_.size(); p += stride) partitions_[p].end_sweep();
}

std::unique_lock<std::mutex> Table::lock_beside_snapshot(const Partition& partition) const {
  std::unique_lock lock(partition.mutex, std::defer_lock);
  if (snapshot_open()) lock.lock();
  return lock;
}

void Table::end_sweep() {
  // Cheap and always right: found rows are short-lived.
  if (!options().expiry.any()) return;
  ++epoch_;
  try {
    bound_tombstones();
  } catch (const std::exception&) {
    // Without memory the next step tries again; this one is done.
  }
}

}  // namespace hotrow
