// The communicator of a run's ranks in the memory of their GPUs.
#pragma once

#include "core/comm/collectives.h"
#include "core/gpu/comm/communicator.h"

namespace hotrow {

// The first call makes it; all ranks make that call at the same place of their queues. It uses NCCL
// when each rank has its own GPU, copies when the ranks are threads with one GPU, else the host's
// memory. Fails with InvalidArgument, on all ranks, when NCCL is requested and two ranks share a
// GPU, or when a rank's GPU differs from its earlier one. Not from work on the queue.
DeviceCommunicator& device_communicator_of(Collectives& ranks, int device);

}  // namespace hotrow
