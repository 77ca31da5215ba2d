// Tables on ranks whose distinct keys travel, at home: the siblings of ranks/owned_exchange.h and
// ranks/replicated_exchange.h for rows on GPUs. R ranks, T tables, N keys at home, U distinct ones,
// D width.
#pragma once

#include <vector>

#include "core/gpu/kernels/places.h"
#include "core/gpu/step/call_keys.h"
#include "core/gpu/step/rank_context.h"

namespace hotrow {

// Schemes kRow, kTable: distinct keys go to their owners, whose rows come back. Here they are
// pooled, and gradients summed per distinct key, before they go the same way.
//
// Scheme kReplicated: distinct keys and their sums go to all ranks. Each looks the keys of all
// ranks up, in the order of the ranks, and so adds their sums in that order: the ranks in RAM add
// slices of them and exchange these sums, with the same bits.
//
// A step calls the functions in the order of this class.
class DeviceRankKeys {
 public:
  // Whether the call has such tables; if not, no function does anything.
  bool any() const { return any_; }

  // Makes the keys distinct and groups them by table and owner.
  void collect(const DeviceRankContext& here);
  // Takes pinned memory for what the host must know, and has it copied there.
  void take_answer(const DeviceRankContext& here, DeviceArena& arena);
  void copy_answer(const DeviceRankContext& here);
  // When the answer is there. Fails when a key is out of the vocabulary or row_splits are wrong.
  void check(const DeviceRankContext& here);

  // Instead of the answer, for a prefetched batch: the numbers of keys that the host sent, and what
  // was received of a table: (R).
  void set_sent(const DeviceRankContext& here, const RankPass& prefetched);
  void take_received(const DeviceRankContext& here, size_t table, const Feature* received);

  // Distinct keys to another rank, and from it.
  size_t sent(size_t group) const { return sent_[group]; }
  void set_received(size_t group, size_t keys) { received_[group] = keys; }
  // Bytes of a part of home_rows or keys_sent, and of owner_rows or keys_received.
  size_t home_bytes(const DeviceRankContext& here, Leg leg, size_t table, size_t rank) const;
  size_t owner_bytes(const DeviceRankContext& here, Leg leg, size_t table, size_t rank) const;

  // Notes where the rows of the keys will be, and writes keys and lookups, [n x int64 | n x
  // uint32], unless the batch was prefetched.
  void place_keys(const DeviceRankContext& here, bool prefetched);
  // At the owner: the features to look up of a table, their outputs and their gradients.
  void add_features(const DeviceRankContext& here, size_t table, OwnerCall* owner) const;
  void add_outputs(const DeviceRankContext& here, size_t table, OwnerCall* owner) const;
  void add_gradients(const DeviceRankContext& here, size_t table, OwnerCall* owner) const;
  void pool(const DeviceRankContext& here, const std::vector<float*>& pooled) const;
  void write_gradients(const DeviceRankContext& here, const std::vector<const float*>& gradients);

  size_t bytes() const { return described_.bytes() + memory_.bytes() + replicas_.bytes(); }

 private:
  std::vector<DeviceFeature> features(const DeviceRankContext& here) const;
  void make_room_for_replicas(const DeviceRankContext& here);

  bool any_ = false;
  LayerCall call_;  // without the other tables' keys
  KeyPlaces keys_;
  std::vector<size_t> sent_, received_;  // (T, R)

  // On the device.
  CallKeys all_;
  DeviceUnique unique_;
  DeviceOwners owners_;
  DevicePlaced placed_;
  DeviceKeyGroup* groups_ = nullptr;  // (T, R)
  DeviceBlock described_, memory_;
  DeviceBlock replicas_;            // rows of the own keys of replicated tables
  std::vector<float*> replica_of_;  // (T) there

  struct Answer {
    WrongKeys* wrong = nullptr;
    int64_t* key = nullptr;
    uint32_t* group_first = nullptr;  // (T R + 1)
  } answer_;
};

}  // namespace hotrow
