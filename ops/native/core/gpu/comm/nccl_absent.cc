// Replaces gpu/comm/nccl_communicator.cc where there is no nccl.h.
#include "core/gpu/comm/nccl_communicator.h"

namespace hotrow {

std::unique_ptr<DeviceCommunicator> nccl_communicator(Communicator&, int, const std::string&,
                                                      double) {
  fail(Code::kUnimplemented,
       "hotrow was built without nccl.h and has no ranks with a GPU each: pip install "
       "nvidia-nccl-cu12, then build it again");
}

bool has_nccl(const std::string&) { return false; }

}  // namespace hotrow
