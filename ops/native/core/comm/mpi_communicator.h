// Ranks that are processes, started and connected by MPI.
#pragma once

#include <memory>
#include <string>

#include "core/comm/communicator.h"

namespace hotrow {

// Of all processes of MPI_COMM_WORLD; all must call it. MPI is initialised, for several threads, by
// somebody else, who also finalises it: never after a failure, since collectives are then in flight
// whose memory is gone. library: path of MPI's library, if it is not loaded by its own name.
// Fails as MpiLibrary does, with FailedPrecondition after a failure in this process, with
// DeadlineExceeded when other ranks do not come, and with Unimplemented where the core was built
// without mpi.h.
std::unique_ptr<Communicator> mpi_communicator(const std::string& library, double timeout_seconds);

}  // namespace hotrow
