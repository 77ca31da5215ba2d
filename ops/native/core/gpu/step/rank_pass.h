// What a forward pass of tables on ranks, with rows on GPUs, dispatched; its backward pass reuses
// it. The sibling of ranks/rank_pass.h.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/gpu/step/features_ahead.h"
#include "core/gpu/step/rank_batches.h"
#include "core/gpu/step/rank_context.h"
#include "core/gpu/step/rank_keys.h"

namespace hotrow {

struct DeviceRankPass {
  int64_t ticket = 0;  // of the forward pass; 0: no backward pass waits for it
  std::vector<Table*> tables;
  KeyPlaces places;     // of all features
  RankFailure failure;  // of this rank, in `collect`
  DeviceRankKeys keys;
  DeviceRankBatches batches;
  DeviceRankMessages messages;
  std::shared_ptr<DeviceFeaturesAhead> ahead;  // of a prefetched batch: where its keys are
  OwnerCall owner;
  int64_t owner_ticket = 0;  // of the local forward pass

  size_t bytes() const { return keys.bytes() + batches.bytes() + messages.bytes(); }
};

// The work memory of the layer with this first table. One call uses it at a time.
struct DeviceRankWork {
  std::mutex mutex;
  DeviceFeaturesPool features_ahead;  // outlives the passes
  std::vector<std::unique_ptr<DeviceRankPass>> waiting;
  DeviceRankMemory memory;
  DeviceEvent used;
  std::atomic<size_t> bytes{0};  // of the device's memory, after the last call

  void note_bytes() {
    size_t total = memory.bytes();
    for (const auto& pass : waiting) total += pass->bytes();
    bytes = total;
  }
};

}  // namespace hotrow
