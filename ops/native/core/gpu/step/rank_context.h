// What the parts of an exchange between ranks share: the call, its memory and its messages. R
// ranks, T tables, F features.
#pragma once

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

// home_rows: in forward what owners send home (rows, or pooled values), in backward the gradients
// to them. owner_rows: the same at the owner.
struct DeviceRankMessages {
  DeviceMessages keys_sent, keys_received, home_rows, owner_rows;

  size_t bytes() const {
    return keys_sent.memory.bytes() + keys_received.memory.bytes() + home_rows.memory.bytes() +
           owner_rows.memory.bytes();
  }
};

// Of a layer's calls, one after the other.
struct DeviceRankMemory {
  DeviceBlock scratch;  // of one kernel after the other
  DeviceBlock terms;    // of a backward pass
  DeviceBlock fingerprint;
  PinnedBlock answer;
  DeviceEvent ready;

  size_t bytes() const { return scratch.bytes() + terms.bytes() + fingerprint.bytes(); }
};

struct DeviceRankContext {
  const LayerCall& call;
  DeviceRankMemory& memory;
  DeviceRankMessages& messages;
  DeviceStream stream;
  size_t ranks, own;

  size_t tables() const { return call.tables.size(); }
  size_t group(size_t table, size_t rank) const { return table * ranks + rank; }
  const Sharding& sharding(size_t table) const { return call.tables[table]->sharding(); }
  // Of whole rows.
  size_t width(size_t table) const { return sharding(table).width; }
  // Whether the table's batches travel, not its distinct keys.
  bool shares_batches(size_t table) const {
    const Scheme scheme = sharding(table).scheme;
    return scheme == Scheme::kColumn || scheme == Scheme::kRowBroadcast;
  }
  bool is_replicated(size_t table) const { return sharding(table).scheme == Scheme::kReplicated; }
  // The call without the keys of tables that share batches, or of those that do not.
  LayerCall part(bool shares) const;
  // Throws the error, if there is one, of keys that were collected from a part of the call. key:
  // pinned memory.
  void refuse_wrong(const LayerCall& part, const KeyPlaces& places, const CallKeys& keys,
                    const WrongKeys& wrong, int64_t* key) const;
  void* scratch(size_t bytes) const {
    memory.scratch.reserve(bytes);
    return memory.scratch.data();
  }
};

}  // namespace hotrow
