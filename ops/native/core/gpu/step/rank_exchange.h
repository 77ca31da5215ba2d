// One call of tables on several ranks whose rows are on GPUs, exchange by exchange: the sibling of
// RankExchange (ranks/exchange.h). Keys, rows and gradients travel from GPU to GPU; their numbers
// go through the host's collectives. R ranks, T tables, F features.
#pragma once

#include <vector>

#include "core/gpu/comm/communicator.h"
#include "core/gpu/step/rank_pass.h"
#include "core/ranks/prefetched_batch.h"

namespace hotrow {

// A step calls the functions in the order of this class, the same on all ranks. When `collect`
// fails on one rank, all ranks throw its failure in `send_keys` as AgreedError; then nothing has
// changed.
class DeviceRankExchange {
 public:
  // All arguments must outlive this. The tables' GPU is current in the calling thread.
  DeviceRankExchange(const LayerCall& call, DeviceCommunicator& on_gpu, DeviceRankWork* work,
                     DeviceRankPass* pass, DeviceStream stream);

  // Makes this rank's keys distinct and groups them by table and owner; waits for their numbers.
  void collect();
  // Sends keys to their owners.
  void send_keys(bool insert);
  // Instead of both, for a batch whose keys the host's messages have brought to their owners, in
  // `keys`. Does not wait; `look_up` fails if the call is not that batch.
  void take_prefetched(const PrefetchedBatch& batch, const RankPass& keys);
  // Owners look the keys up, and send rows home.
  void look_up(bool insert, size_t* missing);
  void pool(const std::vector<float*>& pooled);
  // The same way back for gradients.
  void backward(const std::vector<const float*>& gradients, const BackwardOptions& options);

 private:
  void check_keys();
  void exchange_facts(bool insert);
  // Lays out the messages of a leg on this rank's side and at the owner, which lose their contents.
  void lay_out(Leg leg, DeviceMessages* home, DeviceMessages* owner);
  void release_ahead();
  // Whether the call's values have the fingerprint of the prefetched batch.
  bool is_prefetched();
  void add_outputs();
  void exchange(const char* leg, const DeviceMessages& sent, const DeviceMessages& received);
  LayerCall owner_call() const;

  const LayerCall& call_;
  DeviceCommunicator& on_gpu_;
  DeviceRankPass* pass_;
  Collectives& ranks_;
  const DeviceRankContext here_;
  const PrefetchedBatch* prefetched_ = nullptr;
  uint64_t* fingerprint_ = nullptr;  // of the call: pinned memory
};

}  // namespace hotrow
