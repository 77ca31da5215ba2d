// One call of tables on several ranks, exchange by exchange (docs/design/0009-ranks.md).
#pragma once

#include <string>
#include <vector>

#include "core/ranks/rank_pass.h"
#include "core/table/training.h"

namespace hotrow {

// R ranks, T tables, F features. A step calls the functions in the order of this class, the same on
// all ranks. When `collect` fails on one rank, all ranks throw its failure in `send_keys` as
// AgreedError; then nothing has changed.
class RankExchange {
 public:
  // call and pass must outlive this. queued: the queue's communicator, when this runs in the
  // queue's thread; else collectives are put on the queue.
  RankExchange(const LayerCall& call, RankPass* pass, Communicator* queued = nullptr);

  // --- input dispatcher --------------------------------------------------------------------------
  // Makes this rank's keys distinct and groups them by owner.
  void collect(bool insert);
  // Sends keys to their owners.
  void send_keys(bool insert);

  // --- lookup at the owner, and output dispatcher ------------------------------------------------
  // Prepares the lookup of the received keys.
  void prepare_owner();
  // Looks the rows up, and sends them home.
  void look_up(bool insert, size_t* missing);
  void pool(const std::vector<float*>& pooled);

  // --- the same way back for gradients -----------------------------------------------------------
  void backward(const std::vector<const float*>& gradients, const BackwardOptions& options);
  // With staleness: the next backward pass sends all pending gradients to their owners.
  void push_all();

  // Call it after send_keys: the tables bring the requested rows into their device tiers. With
  // caches on GPUs, the received keys go there, too.
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
  // write(table) fills the parts of a table; parts of rows are written already.
  template <typename Write>
  void exchange(Leg leg, Write&& write);
  void run(const char* what, const Collectives::Work& work);
  // Exchanges what all ranks need before they exchange keys, failures of a rank included.
  void exchange_facts(bool insert);
  // Answers lookups; versions and states go with the rows.
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
