// A table's state besides its rows, as bytes: a header, the partitions, a fingerprint.
#include <farmhash.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "core/table/device_tier.h"
#include "core/table/table.h"

namespace hotrow {
namespace {

constexpr uint64_t kStateMagic = 0x32545352544f4857ULL;  // version 2
// Version 1: all tombstones were kept, and updates were not counted.
constexpr uint64_t kStateMagic1 = 0x31545352544f4857ULL;
constexpr size_t kTombstoneBytes = sizeof(int64_t) + sizeof(uint32_t);

class Writer {
 public:
  template <typename T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    data.insert(data.end(), bytes, bytes + sizeof(T));
  }
  // The tombstones of a partition. Steps wait for the lock meanwhile, so it takes few instructions
  // each.
  void tombstones(const Tombstones& from) {
    number<uint64_t>(from.size());
    size_t at = data.size();
    data.resize(at + from.size() * kTombstoneBytes);
    from.each([&](int64_t key, uint32_t step) {
      std::memcpy(data.data() + at, &key, sizeof(key));
      std::memcpy(data.data() + at + sizeof(key), &step, sizeof(step));
      at += kTombstoneBytes;
    });
  }
  std::vector<uint8_t> data;
};

class Reader {
 public:
  Reader(const std::string& table, const uint8_t* data, size_t size)
      : table_(table), data_(data), left_(size) {}
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, bytes(sizeof(T)), sizeof(T));
    return value;
  }
  const uint8_t* bytes(size_t count) {
    if (count > left_) damaged();
    const uint8_t* at = data_;
    data_ += count;
    left_ -= count;
    return at;
  }
  size_t left() const { return left_; }
  [[noreturn]] void damaged() const {
    fail(Code::kDataLoss, "the state of table %s is damaged", table_.c_str());
  }

 private:
  const std::string& table_;
  const uint8_t* data_;
  size_t left_;
};

uint64_t fingerprint_of(const uint8_t* data, size_t size) {
  return util::Fingerprint64(reinterpret_cast<const char*>(data), size);
}

struct PartState {
  Totals totals;
  uint64_t sweep_place;
  uint64_t places;
  std::vector<std::pair<int64_t, uint32_t>> tombstones;
  const uint8_t* filter;
  size_t filter_bytes;
};

struct TableState {
  uint32_t step;
  uint32_t forgotten_step = 0;
  uint64_t lookups;
  uint64_t updates = 0, nonfinite_updates = 0;
  std::vector<PartState> parts;
};

// Checks all that does not depend on the table to restore.
TableState read_state(const std::string& table, const uint8_t* data, size_t size) {
  Reader r(table, data, size);
  if (size < sizeof(uint64_t)) r.damaged();
  uint64_t fingerprint;
  std::memcpy(&fingerprint, data + size - sizeof(fingerprint), sizeof(fingerprint));
  if (fingerprint != fingerprint_of(data, size - sizeof(fingerprint))) r.damaged();
  const uint64_t magic = r.number<uint64_t>();
  if (magic != kStateMagic && magic != kStateMagic1) r.damaged();
  TableState state;
  state.step = r.number<uint32_t>();
  const uint32_t count = r.number<uint32_t>();
  state.lookups = r.number<uint64_t>();
  if (magic == kStateMagic) {
    state.updates = r.number<uint64_t>();
    state.nonfinite_updates = r.number<uint64_t>();
    state.forgotten_step = r.number<uint32_t>();
  }
  if (count == 0 || count % Table::kPartitions != 0) r.damaged();
  for (uint32_t p = 0; p < count; ++p) {
    PartState part;
    part.totals.admitted = r.number<uint64_t>();
    part.totals.refused = r.number<uint64_t>();
    part.totals.expired = r.number<uint64_t>();
    part.sweep_place = r.number<uint64_t>();
    part.places = r.number<uint64_t>();
    const uint64_t tombstones = r.number<uint64_t>();
    if (tombstones > r.left() / kTombstoneBytes) r.damaged();
    for (uint64_t i = 0; i < tombstones; ++i) {
      const int64_t key = r.number<int64_t>();
      part.tombstones.emplace_back(key, r.number<uint32_t>());
      if (part.tombstones.back().second == 0) r.damaged();
    }
    part.filter_bytes = r.number<uint64_t>();
    part.filter = r.bytes(part.filter_bytes);
    state.parts.push_back(std::move(part));
  }
  if (r.left() != sizeof(fingerprint)) r.damaged();
  return state;
}

}  // namespace

std::vector<uint8_t> Table::state() const {
  take_updates();
  std::shared_lock lock(mutex_);
  return state_in_lock();
}

std::vector<uint8_t> Table::state_in_lock() const {
  Writer w;
  size_t tombstones = 0;
  for (const Partition& partition : partitions_) tombstones += partition.tombstones.size();
  w.data.reserve(tombstones * kTombstoneBytes + partitions_.size() * 64 + 64);
  w.number(kStateMagic);
  w.number<uint32_t>(step_);
  w.number<uint32_t>(static_cast<uint32_t>(partitions_.size()));
  w.number<uint64_t>(lookups_);
  w.number<uint64_t>(updates_);
  w.number<uint64_t>(nonfinite_updates_);
  w.number<uint32_t>(forgotten_in_lock());
  for (const Partition& partition : partitions_) {
    w.number(partition.totals.admitted);
    w.number(partition.totals.refused);
    w.number(partition.totals.expired);
    w.number(partition.sweep_place);
    w.number<uint64_t>(partition.places());
    w.tombstones(partition.tombstones);
    std::vector<uint8_t> filter;
    if (partition.admission() != nullptr) filter = partition.admission()->save();
    w.number<uint64_t>(filter.size());
    w.data.insert(w.data.end(), filter.begin(), filter.end());
  }
  w.number(fingerprint_of(w.data.data(), w.data.size()));
  return w.data;
}

void Table::set_state(const uint8_t* data, size_t size) {
  const TableState state = read_state(name_, data, size);
  const std::vector<PartState>& parts = state.parts;
  uint64_t places = 0;
  for (const PartState& part : parts) {
    if (part.places > most_places()) Reader(name_, data, size).damaged();
    places += part.places;
  }
  if (places > most_places()) Reader(name_, data, size).damaged();

  std::unique_lock lock(mutex_);
  check_no_snapshot("restore its state");
  const bool same_shards = parts.size() == partitions_.size();
  for (size_t p = 0; same_shards && p < parts.size(); ++p) {
    if ((parts[p].filter_bytes != 0) != (partitions_[p].admission() != nullptr)) {
      fail(Code::kFailedPrecondition, "the state of table %s is of another admission",
           name_.c_str());
    }
  }
  if (same_shards && partitions_[0].admission() != nullptr) {
    // All or none: the current state is restored when one is refused.
    std::vector<std::vector<uint8_t>> before;
    for (Partition& partition : partitions_) before.push_back(partition.admission()->save());
    try {
      for (size_t p = 0; p < parts.size(); ++p) {
        partitions_[p].admission()->restore(parts[p].filter, parts[p].filter_bytes);
      }
    } catch (...) {
      for (size_t p = 0; p < parts.size(); ++p) {
        partitions_[p].admission()->restore(before[p].data(), before[p].size());
      }
      throw;
    }
  }
  step_ = state.step;
  tier_->take_updates();
  lookups_ = state.lookups;
  updates_ = state.updates;
  nonfinite_updates_ = state.nonfinite_updates;
  for (Partition& partition : partitions_) {
    partition.totals = {};
    partition.tombstones.clear();
    partition.tombstones.set_forgotten(state.forgotten_step);
    partition.sweep_place = 0;
  }
  for (size_t p = 0; p < parts.size(); ++p) {
    Partition& partition = partitions_[same_shards ? p : p % partitions_.size()];
    partition.totals.admitted += parts[p].totals.admitted;
    partition.totals.refused += parts[p].totals.refused;
    partition.totals.expired += parts[p].totals.expired;
    if (same_shards) {
      partition.sweep_place = parts[p].sweep_place;
      partition.add_free_places(parts[p].places);
    }
    for (const auto& [key, expired_at] : parts[p].tombstones) {
      const uint64_t hash = mix64(static_cast<uint64_t>(key));
      partitions_[partition_number(key, hash)].tombstones.restore(key, expired_at);
    }
  }
}

void Table::merge_states(const std::vector<SavedState>& saved) {
  if (saved.empty()) fail(Code::kInvalidArgument, "table %s: no states", name_.c_str());
  std::vector<TableState> states;
  for (const SavedState& one : saved) states.push_back(read_state(name_, one.data, one.size));

  std::unique_lock lock(mutex_);
  check_no_snapshot("restore its state");
  step_ = 0;
  tier_->take_updates();
  lookups_ = updates_ = nonfinite_updates_ = 0;
  for (Partition& partition : partitions_) {
    partition.totals = {};
    partition.tombstones.clear();
    for (const TableState& state : states) partition.tombstones.forget(state.forgotten_step);
    partition.sweep_place = 0;
  }
  for (size_t i = 0; i < states.size(); ++i) {
    step_ = std::max(step_, states[i].step);
    if (saved[i].counts) {
      lookups_ += states[i].lookups;
      updates_ += states[i].updates;
      nonfinite_updates_ += states[i].nonfinite_updates;
    }
    for (const PartState& part : states[i].parts) {
      if (saved[i].counts) {
        partitions_[0].totals.admitted += part.totals.admitted;
        partitions_[0].totals.refused += part.totals.refused;
        partitions_[0].totals.expired += part.totals.expired;
      }
      for (const auto& [key, expired_at] : part.tombstones) {
        if (sharding_.owner_of(key) != sharding_.rank()) continue;
        const uint64_t hash = mix64(static_cast<uint64_t>(key));
        partitions_[partition_number(key, hash)].tombstones.restore(key, expired_at);
      }
    }
  }
}

}  // namespace hotrow
