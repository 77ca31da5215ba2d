// Ranks with a GPU each, by NCCL.
#pragma once

#include <memory>
#include <string>

#include "core/gpu/comm/communicator.h"

namespace hotrow {

// All ranks of the host communicator call it, each with its own GPU. A broadcast through the host
// sends rank 0's NCCL id. library: path of libnccl.so.2, if it is not found by its own name. Fails
// as NcclLibrary does, with DeadlineExceeded when other ranks do not come, and with Unimplemented
// where the core was built without nccl.h.
std::unique_ptr<DeviceCommunicator> nccl_communicator(Communicator& host, int device,
                                                      const std::string& library,
                                                      double timeout_seconds);

// Whether nccl_communicator finds NCCL.
bool has_nccl(const std::string& library);

}  // namespace hotrow
