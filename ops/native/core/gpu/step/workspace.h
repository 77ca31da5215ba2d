// Memory of a layer's calls on a GPU, and what its last forward passes found. It grows with the
// largest batch; a step of a batch that is no larger allocates none.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/gpu/kernels/cache.h"
#include "core/gpu/kernels/runtime.h"
#include "core/gpu/kernels/unique.h"
#include "core/gpu/step/call_keys.h"
#include "core/gpu/step/host_rows.h"
#include "core/gpu/step/transit.h"
#include "core/table/table.h"

namespace hotrow {

// The distinct keys of a batch. N keys of all features, grouped by table.
struct DeviceBatchKeys {
  KeyPlaces keys;         // of the keys of all features
  DeviceUnique unique;    // on the device
  DeviceLookups counted;  // on the device; null where each key is one lookup
  DeviceProbed probed;    // on the device: room for their rows
  DeviceBlock memory, counted_memory;

  size_t count() const { return keys.count(); }
  size_t bytes() const { return memory.bytes() + counted_memory.bytes(); }
  // (U) lookups of the distinct keys, on the device.
  uint32_t* counts() const { return counted.counts == nullptr ? unique.counts : counted.counts; }
};

// The lookup of a batch.
struct DeviceBatch : DeviceBatchKeys {
  int64_t ticket = 0;  // 0: of no pass
  std::vector<Table*> tables;
  bool spent = true;                     // its backward pass has run
  std::vector<uint64_t> epochs;          // (T)
  std::vector<uint64_t> host_epochs;     // (T)
  std::vector<uint32_t> distinct_first;  // (T + 1) distinct keys before each table
  DeviceBypass bypass;
  std::vector<uint32_t> bypass_first;  // (T + 1)
  uint32_t* bypass_places = nullptr;   // (B) on the device
  // (B) of these rows in the host's memory, if a table was watched; else empty.
  std::vector<uint32_t> watched_places;
  std::vector<int64_t> watched_keys;
  std::vector<uint64_t> lookups;      // (T) keys that have a row
  size_t missing = 0;                 // distinct keys that had no slot
  size_t absent = 0;                  // distinct keys that have none
  mutable DeviceBlock bypass_memory;  // until its rows go back; see RowsInTransit

  size_t bytes() const { return DeviceBatchKeys::bytes() + bypass_memory.bytes(); }
  void note_epochs() {
    epochs.clear();
    host_epochs.clear();
    for (const Table* table : tables) {
      epochs.push_back(table->epoch());
      host_epochs.push_back(table->host_epoch());
    }
  }
  // Whether rows are still where they were found.
  bool holds() const {
    for (size_t t = 0; t < tables.size(); ++t) {
      if (epochs[t] != tables[t]->epoch()) return false;
    }
    return true;
  }
  // Whether only the tiers of rows changed: then keys without a row still have none.
  bool holds_in_host() const {
    for (size_t t = 0; t < tables.size(); ++t) {
      if (host_epochs[t] != tables[t]->host_epoch()) return false;
    }
    return true;
  }
};

// A missing key that is looked for in the host tier.
struct SoughtKey {
  uint64_t hash;
  Partition* partition;
  bool beside_reader;  // of a snapshot
  uint8_t task;
};

class DeviceWorkspace {
 public:
  // Batches of passes that wait for their backward pass, and of a call without one.
  DeviceBatch batches[Table::kFoundBatches], own;
  DeviceBlock scratch;           // of one kernel after the other
  DeviceBlock described;         // the keys of a call that did not look them up ahead
  DeviceBlock described_update;  // small arrays that describe an update
  DeviceBlock missing;           // of the missing keys of a batch
  DeviceBlock terms;             // gradient rows of a backward pass or a commit, by distinct key
  DeviceBlock sums;              // of gradients that are clipped or measured first
  DeviceBlock factors;           // of tables whose gradients are clipped
  DeviceBlock squares;           // of the rows of columns, on ranks
  DeviceBlock total;             // of their squares, on ranks
  PinnedBlock answer, sent;
  NewHostBlocks new_blocks;
  std::vector<SoughtKey> sought;
  RowsInTransit transit;  // of the last backward pass
  DeviceEvent ready;
  // The end of a call of these tables; all of them may keep it. Such calls come one after the
  // other, also on the device, so a later record is also the end of the earlier ones.
  const std::shared_ptr<DeviceEvent>& used_by(const std::vector<Table*>& tables) {
    for (const auto& [whose, event] : used_) {
      if (whose == tables) return event;
    }
    // Who keeps the event of other tables goes on keeping it.
    if (used_.size() == kUses) used_.erase(used_.begin());
    return used_.emplace_back(tables, std::make_shared<DeviceEvent>()).second;
  }

  size_t bytes() const {
    size_t total = described_update.bytes() + scratch.bytes() + described.bytes() +
                   missing.bytes() + terms.bytes() + sums.bytes() + factors.bytes() +
                   squares.bytes() + this->total.bytes() + new_blocks.bytes();
    for (const DeviceBatch& batch : batches) {
      total += batch.bytes();
    }
    return total + own.bytes();
  }
  // The batch for the next pass: one that no backward pass waits for, else the oldest.
  DeviceBatch& next_batch() {
    DeviceBatch* next = &batches[0];
    for (DeviceBatch& batch : batches) {
      if (batch.spent) return batch;
      if (batch.ticket < next->ticket) next = &batch;
    }
    return *next;
  }

 private:
  static constexpr size_t kUses = 8;
  std::vector<std::pair<std::vector<Table*>, std::shared_ptr<DeviceEvent>>> used_;
};

}  // namespace hotrow
