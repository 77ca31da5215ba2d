// What a forward pass of tables on ranks, with rows on GPUs, dispatched; its backward pass reuses
// it. The sibling of ranks/rank_pass.h. R ranks, T tables, N keys at home, U distinct ones.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "core/gpu/kernels/places.h"
#include "core/gpu/kernels/runtime.h"
#include "core/gpu/step/call_keys.h"
#include "core/ranks/rank_pass.h"

namespace hotrow {

// Memory for MessagesIn; growing loses its contents.
class DeviceMessageBytes {
 public:
  std::byte* room(size_t bytes) {
    block_.reserve(bytes);
    return block_.data();
  }
  std::byte* data() const { return block_.data(); }
  size_t bytes() const { return block_.bytes(); }

 private:
  DeviceBlock block_;
};
// Rows begin where 16 bytes can be read at once.
using DeviceMessages = MessagesIn<DeviceMessageBytes, 16>;

struct DeviceRankPass {
  int64_t ticket = 0;  // of the forward pass; 0: no backward pass waits for it
  std::vector<Table*> tables;
  RankFailure failure;  // of this rank, in `collect`
  KeyPlaces keys;
  std::vector<size_t> sent, received;  // (T, R) distinct keys to, and from, each rank

  // On the device.
  CallKeys all;
  DeviceUnique unique;
  DeviceOwners owners;
  DevicePlaced placed;
  DeviceKeyGroup* groups = nullptr;  // (T, R)
  DeviceBlock described, memory;
  // Keys: [n x int64 | lookups: n x uint32]. home_rows: in forward the rows of the sent keys, in
  // backward their gradients. owner_rows: the same at the owner.
  DeviceMessages keys_sent, keys_received, home_rows, owner_rows;

  OwnerCall owner;
  int64_t owner_ticket = 0;  // of the local forward pass

  size_t bytes() const {
    size_t total = described.bytes() + memory.bytes();
    for (const auto* one : {&keys_sent, &keys_received, &home_rows, &owner_rows}) {
      total += one->memory.bytes();
    }
    return total;
  }
};

// The work memory of the layer with this first table. One call uses it at a time.
struct DeviceRankWork {
  std::mutex mutex;
  std::vector<std::unique_ptr<DeviceRankPass>> waiting;
  DeviceBlock scratch;  // of one kernel after the other
  DeviceBlock terms;    // of a backward pass
  PinnedBlock answer;
  DeviceEvent ready, used;
  std::atomic<size_t> bytes{0};  // of the device's memory, after the last call

  void note_bytes() {
    size_t total = scratch.bytes() + terms.bytes();
    for (const auto& pass : waiting) total += pass->bytes();
    bytes = total;
  }
};

}  // namespace hotrow
