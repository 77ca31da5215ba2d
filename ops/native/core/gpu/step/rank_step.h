// The steps of tables that are split over ranks and have their device tiers on GPUs: input
// dispatcher -> local pass at the owner (gpu/step/layer.h) -> output dispatcher, and the same way
// back. The sibling of ranks/step.h; the same rows, bit for bit.
#pragma once

#include <vector>

#include "core/gpu/kernels/memory.h"
#include "core/table/training.h"

namespace hotrow {

// As device_forward and device_backward, with this rank's batch; all ranks call them in the same
// order. Failures: as forward.
int64_t device_rank_forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                            size_t* missing, DeviceStream stream);
void device_rank_backward(const LayerCall& call, const std::vector<const float*>& gradients,
                          const BackwardOptions& options, DeviceStream stream);

}  // namespace hotrow
