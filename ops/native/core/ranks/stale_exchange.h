// Rows that one rank owns while other ranks keep replicas of hot ones: bounded staleness.
#pragma once

#include <vector>

#include "core/ranks/owned_exchange.h"
#include "core/ranks/stale_words.h"
#include "core/table/replica_cache.h"

namespace hotrow {

// After HET. A rank reads a replica as it is while its owner has counted at most s updates by other
// ranks since it came (fewer for a young row: StalenessOptions::most_behind). The owner checks this
// for each batch and sends only the rows that lag further. A rank applies its own gradients to the
// replica at once and sums them. It sends the sum to the owner after one more update than that
// bound, or when a hotter row evicts the replica. A step of a rank is an update. Rows that no rank
// keeps are exchanged as without staleness.
//
// The state of a replica comes with it. It comes again with a later copy of the row, once the row
// has half as many updates more: only the owner's state has the other ranks' updates.
//
// Messages to each rank beside those of OwnedExchange; n keys, m of them chosen, k of these kept, s
// with their state:
// keys: [KeyMessage | a word of each key (StaleWord): n x uint32]
// answers: [a bit for each of these keys: its row comes]
// rows: [updates at the owner: k x uint32 | m x D | state: s x floats of a state]
// pushes: [evicted rows: e, an int64 | a bit for each key: its gradient comes]
// gradients: [e keys | updates, lookups: each (k + e) x uint32 | (m + e) x D]
class StaleExchange : public OwnedExchange {
 public:
  StaleExchange(Table& table, size_t number);
  bool is_stale() const override { return true; }
  void begin_batch() override;
  void collect(const std::vector<const Feature*>& features) override;
  void take_kept() override;
  size_t bytes_to(Leg leg, int to) const override;
  size_t bytes_from(Leg leg, int from) const override;
  void write_keys(int to, std::byte* message) const override;
  void take_keys(int from, const std::byte* message) override;
  void write_answers(int to, std::byte* message) override;
  void take_answers(int from, const std::byte* message) override;
  void look_up(std::byte* const* messages, OwnerCall* call) override;
  void looked_up(const std::byte* const* lines, std::byte* const* messages) override;
  void take_rows(const std::byte* const* messages) override;
  void prepare_gradients(const std::vector<const Feature*>& features,
                         const std::vector<const float*>& gradients, float learning_rate) override;
  void write_pushes(int to, std::byte* message) override;
  void take_pushes(int from, const std::byte* message) override;
  void write_gradients(const std::vector<const Feature*>& features,
                       const std::vector<const float*>& gradients,
                       std::byte* const* messages) override;
  void take_gradients(const std::byte* const* messages) override;
  void add_gradients(OwnerCall* call) override;
  // Lookups that do not train use no replicas: they read the owners' rows.
  void set_training(bool training) override { training_ = training; }
  void push_all() override;

 private:
  size_t asked(size_t rank) const { return static_cast<size_t>(received_[rank].keys); }
  const uint32_t* words_of(size_t rank) const { return words_.data() + keys_.begin_of(rank); }
  size_t state_floats() const {
    return table_->shape().layout.vectors * width() + table_->shape().layout.scalars;
  }
  size_t row_bytes(const ChosenKeys& rows) const;
  size_t gradient_bytes(const ChosenKeys& gradients, size_t evicted) const;
  StaleState& stale() { return *table_->stale(); }
  ReplicaCache& kept() { return *stale().kept; }
  UpdateStep step_of_kept();
  // Stores a row that came, and its state, unless null.
  void keep(uint32_t slot, const float* row, uint32_t version, const float* state);

  bool training_ = true;
  bool push_all_ = false;
  // At home, in the order of places.
  std::vector<uint32_t> words_, slots_;
  std::vector<std::vector<PendingGradient*>> evicted_to_;  // (R)
  std::vector<ChosenKeys> coming_, pushed_;                // (R)
  std::vector<float> sums_;                                // (U, D) this step's
  std::vector<float> pushes_;                              // (U, D) what is pushed, by place
  std::vector<uint32_t> push_updates_, push_lookups_;      // (U)
  std::vector<float> state_;                               // of a row
  // At the owner, of each rank.
  std::vector<const uint32_t*> their_words_;
  std::vector<ChosenKeys> answers_, their_pushes_;
  std::vector<std::vector<int64_t>> sent_keys_, pushed_keys_;
  std::vector<std::vector<uint32_t>> sent_lookups_, pushed_lookups_;
  std::vector<size_t> their_evicted_;
};

}  // namespace hotrow
