// Ranks that are threads of one process: for tests, and for several ranks on one GPU.
#pragma once

#include <memory>
#include <vector>

#include "core/comm/communicator.h"

namespace hotrow {

// The communicators of ranks 0 to count - 1 of one group. Destroying its communicator ends a rank.
// Fails with InvalidArgument.
std::vector<std::unique_ptr<Communicator>> thread_communicators(int count, double timeout_seconds);

}  // namespace hotrow
