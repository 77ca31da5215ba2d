// One call of tables on several ranks whose rows are on GPUs, exchange by exchange: the sibling of
// RankExchange (ranks/exchange.h) for schemes row and table. Keys, rows and gradients travel from
// GPU to GPU; their numbers go through the host's collectives. R ranks, T tables, F features.
#pragma once

#include <vector>

#include "core/gpu/comm/communicator.h"
#include "core/gpu/kernels/pooling.h"
#include "core/gpu/step/rank_pass.h"

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
  // Owners look the keys up, and send rows home.
  void look_up(bool insert, size_t* missing);
  void pool(const std::vector<float*>& pooled);
  // The same way back for gradients.
  void backward(const std::vector<const float*>& gradients, const BackwardOptions& options);

 private:
  size_t group(size_t table, size_t rank) const { return table * size_ + rank; }
  size_t width(size_t table) const { return call_.tables[table]->width(); }
  void group_keys();
  void check_keys();
  void exchange_facts(bool insert);
  void prepare_owner();
  std::vector<DeviceFeature> features() const;
  void sum_gradients(const std::vector<const float*>& gradients);
  void exchange(const char* leg, const DeviceMessages& sent, const DeviceMessages& received);
  LayerCall owner_call() const;
  void* scratch(size_t bytes) {
    work_->scratch.reserve(bytes);
    return work_->scratch.data();
  }

  const LayerCall& call_;
  DeviceCommunicator& on_gpu_;
  DeviceRankWork* work_;
  DeviceRankPass* pass_;
  const DeviceStream stream_;
  Collectives& ranks_;
  const size_t size_;
};

}  // namespace hotrow
