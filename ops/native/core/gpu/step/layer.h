// The steps of tables whose device tier is the memory of a GPU: forward and backward of a layer's
// tables on the caller's stream. The sibling of table/training.h: the same rows, places, clocks and
// counts, bit for bit.
//
// In a LayerCall here, keys, row_splits and weights of features are on the device, as outputs and
// gradients are. Calls return when their work is on the stream. A forward pass waits in between, by
// an event, until the keys without a slot are known. It finds or creates their rows in the host
// tier in the order of the keys, as without a device tier. F features, T tables, N keys, U distinct
// ones, M of them missing.
#pragma once

#include <cstdint>
#include <vector>

#include "core/gpu/kernels/memory.h"
#include "core/table/training.h"

namespace hotrow {

// As forward, on a stream. All tables are on the stream's GPU.
int64_t device_forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                       size_t* missing, DeviceStream stream);

// With tables that are split over ranks, all ranks call it (gpu/step/rank_step.h). The _local
// variants run in this rank's part of them, without the other ranks.
int64_t device_forward_local(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                             size_t* missing, DeviceStream stream);
void device_backward_local(const LayerCall& call, const std::vector<const float*>& gradients,
                           const BackwardOptions& options, DeviceStream stream);

// As backward. Sums and optimizers are one pass unless gradients wait or are clipped.
void device_backward(const LayerCall& call, const std::vector<const float*>& gradients,
                     const BackwardOptions& options, DeviceStream stream);

// As commit, on a stream, of tables on a GPU. commit_token: (kSlots) in the host's memory.
void device_commit(const std::vector<Table*>& tables, const float* commit_token,
                   const float* learning_rates, float global_clip_norm, const Executor& executor,
                   DeviceStream stream);

}  // namespace hotrow
