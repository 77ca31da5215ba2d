// Tables on ranks whose batches travel, at home: the sibling of ranks/shared_batch_exchange.h for
// rows on GPUs. R ranks, T tables, F features, D width of whole rows.
#pragma once

#include <vector>

#include "core/gpu/kernels/message_rows.h"
#include "core/gpu/kernels/pooling.h"
#include "core/gpu/kernels/unique.h"
#include "core/gpu/step/rank_context.h"
#include "core/ranks/batch_message.h"

namespace hotrow {

// Scheme kColumn: keys, row splits and weights go to all ranks. Each pools its columns, and gets
// the gradients of its columns.
//
// Scheme kRowBroadcast: the same with the keys that a rank owns alone, with weights that are
// already divided. Here the partial sums are added in the order of the ranks; gradients go to all.
// Ranks in RAM send all keys to all ranks, which choose theirs, with the same results.
//
// A step calls the functions in the order of this class.
class DeviceRankBatches {
 public:
  // Whether the call has such tables; if not, no function does anything.
  bool any() const { return any_; }

  // Collects the keys and groups them by owner, where they have one.
  // Not for a prefetched batch, whose keys are at their owners.
  void collect(const DeviceRankContext& here, bool prefetched);
  // As DeviceRankKeys.
  void take_answer(const DeviceRankContext& here, DeviceArena& arena);
  void copy_answer(const DeviceRankContext& here);
  void check(const DeviceRankContext& here);
  // As DeviceRankKeys; received: (the table's features, R).
  void set_sent(const DeviceRankContext& here, const uint32_t* group_first = nullptr);
  void take_received(const DeviceRankContext& here, size_t table, const Feature* received);

  // Numbers from each rank to each other for a table with this many features.
  static size_t facts(size_t features) { return features * BatchMessage::kFacts; }
  void write_facts(const DeviceRankContext& here, size_t table, size_t to, int64_t* facts) const;
  void read_facts(const DeviceRankContext& here, size_t table, size_t from, const int64_t* facts);
  // As DeviceRankKeys.
  size_t home_bytes(const DeviceRankContext& here, Leg leg, size_t table, size_t rank) const;
  size_t owner_bytes(const DeviceRankContext& here, Leg leg, size_t table, size_t rank) const;

  void write_keys(const DeviceRankContext& here);
  // At the owner: as DeviceRankKeys, in the order of the features, then of the ranks.
  void add_features(const DeviceRankContext& here, size_t table, OwnerCall* owner);
  void add_outputs(const DeviceRankContext& here, size_t table, OwnerCall* owner) const;
  void add_gradients(const DeviceRankContext& here, size_t table, OwnerCall* owner) const;
  void pool(const DeviceRankContext& here, const std::vector<float*>& pooled) const;
  void write_gradients(const DeviceRankContext& here, const std::vector<const float*>& gradients);

  size_t bytes() const { return described_.bytes() + memory_.bytes(); }

 private:
  size_t columns(const DeviceRankContext& here, size_t table, size_t rank) const {
    return here.sharding(table).columns(static_cast<int>(rank));
  }
  static bool is_parted(const DeviceRankContext& here, size_t table) {
    return here.sharding(table).scheme == Scheme::kRowBroadcast;
  }
  void part_keys(const DeviceRankContext& here);
  // At the owner: visit(a feature's part of owner_rows) in the order of add_features; at home:
  // visit(table, feature, its outputs, its parts of home_rows by rank).
  template <typename Visit>
  void each_received(const DeviceRankContext& here, size_t table, Visit&& visit) const;
  template <typename Visit>
  void each_output(const DeviceRankContext& here, Visit&& visit) const;

  bool any_ = false, parts_ = false;
  LayerCall call_;                             // without the other tables' keys
  std::vector<std::vector<size_t>> places_;    // (T) features of each table
  std::vector<BatchMessage> sent_, received_;  // (T, R)
  KeyPlaces keys_;

  // On the device.
  CallKeys all_;
  DeviceOwners owners_;       // of the keys of each feature, in the order of the tables
  float* weights_ = nullptr;  // (N) in that order
  DeviceTerms shares_;
  DeviceBlock described_, memory_;

  struct Answer {
    WrongKeys* wrong = nullptr;
    int64_t* key = nullptr;
    uint32_t* group_first = nullptr;  // (F R + 1)
  } answer_;
};

}  // namespace hotrow
