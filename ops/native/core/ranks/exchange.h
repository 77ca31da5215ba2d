// One call of tables on several ranks, exchange by exchange (docs/design/0009-ranks.md).
#pragma once

#include <string>
#include <vector>

#include "core/ranks/rank_pass.h"
#include "core/table/training.h"

namespace hotrow {

// R ranks, T tables, F features. The calls of a step come in the order of this class, the same on
// all ranks. What one rank finds wrong in `collect` all throw in `send_keys`, as AgreedError; then
// nothing has changed.
class RankExchange {
 public:
  // call and pass must outlive this. queued: that of the queue, when this runs in its thread;
  // else collectives are put on it.
  RankExchange(const LayerCall& call, RankPass* pass, Communicator* queued = nullptr);

  // --- input dispatcher
  // --------------------------------------------------------------------------- Makes this rank's
  // keys distinct and groups them by owner.
  void collect(bool insert);
  // Keys go to their owners.
  void send_keys(bool insert);

  // --- lookup at the owner, and output dispatcher
  // ------------------------------------------------- What is to be looked up here.
  void prepare_owner();
  // Looks it up, and brings rows home.
  void look_up(bool insert, size_t* missing);
  void pool(const std::vector<float*>& pooled);

  // --- the same way back for gradients
  // ------------------------------------------------------------
  void backward(const std::vector<const float*>& gradients, const BackwardOptions& options);
  // With staleness: the next backward pass sends owners all pending gradients.
  void push_all();

  // After send_keys: has the tables bring the rows that ranks want into their device tiers.
  void prefetch();

 private:
  std::vector<const Feature*> features(size_t table) const;
  std::vector<std::byte*>& to(Leg leg, size_t table) {
    return pass_->sent[static_cast<size_t>(leg)].parts[table];
  }
  std::vector<std::byte*>& from(Leg leg, size_t table) {
    return pass_->received[static_cast<size_t>(leg)].parts[table];
  }
  const std::byte* const* const_parts(Leg leg, size_t table) { return from(leg, table).data(); }
  bool is_stale() const;
  LayerCall owner_call() const;
  template <typename Do>
  void each_table(Do&& what);
  void lay_out_sent(Leg leg);
  // write(table) fills the parts of a table; of rows they are there already.
  template <typename Write>
  void exchange(Leg leg, Write&& write);
  void run(const char* what, const Collectives::Work& work);
  // What all must know before keys can be exchanged; also, that somebody failed.
  void exchange_facts(bool insert);
  // Versions and states go with the rows.
  void answer_lookups(bool insert);
  void exchange_pushes(const std::vector<const float*>& gradients, const BackwardOptions& options);

  const LayerCall& call_;
  RankPass* pass_;
  Communicator* queued_;
  Collectives& ranks_;
  size_t size_;
  std::vector<std::vector<size_t>> places_;  // (T) features of each table
};

}  // namespace hotrow
