// One call of tables on several ranks whose rows are on GPUs, exchange by exchange: the sibling of
// RankExchange (ranks/exchange.h) for schemes row and table. Keys, rows and gradients travel from
// GPU to GPU; how many they are, by the host's collectives. R ranks, T tables, F features.
#pragma once

#include <vector>

#include "core/gpu/comm/communicator.h"
#include "core/gpu/kernels/pooling.h"
#include "core/gpu/step/rank_pass.h"

namespace hotrow {

// The calls of a step come in the order of this class, the same on all ranks. What one rank finds
// wrong in `collect` all throw in `send_keys`, as AgreedError; then nothing has changed.
class DeviceRankExchange {
 public:
  // All must outlive this. The tables' GPU is the calling thread's.
  DeviceRankExchange(const LayerCall& call, DeviceCommunicator& on_gpu, DeviceRankWork* work,
                     DeviceRankPass* pass, DeviceStream stream);

  // Makes this rank's keys distinct and groups them by table and owner; waits for how many.
  void collect();
  // Keys go to their owners.
  void send_keys(bool insert);
  // Owners look them up, and rows come home.
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
