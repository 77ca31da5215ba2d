// The ranks of a run in memory of their GPUs.
#pragma once

#include "core/comm/collectives.h"
#include "core/gpu/comm/communicator.h"

namespace hotrow {

// Made by the first call, which all ranks make at the same place of their queues: NCCL where each
// has a GPU of its own; copies, where they are threads with one GPU; else by way of the host's
// memory. Fails with InvalidArgument, on all ranks, when NCCL is wanted and two have one GPU, or
// when a rank comes with another GPU than before. Not from work on the queue.
DeviceCommunicator& device_communicator_of(Collectives& ranks, int device);

}  // namespace hotrow
