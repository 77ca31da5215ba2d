// Ranks whose GPUs do not reach each other: uses the host's memory and its collectives. For
// processes that share a GPU, machines without NCCL, and the emulator.
#pragma once

#include <memory>

#include "core/gpu/comm/communicator.h"

namespace hotrow {

// All ranks of the host communicator call it. Calls wait for earlier work on the caller's stream.
std::unique_ptr<DeviceCommunicator> staged_communicator(Communicator& host, int device);

}  // namespace hotrow
