// Ranks that are processes, started and connected by MPI.
#pragma once

#include <memory>
#include <string>

#include "core/comm/communicator.h"

namespace hotrow {

// The communicator of all processes of MPI_COMM_WORLD; all must call it. The application
// initialises MPI for several threads, and finalises it, but never after a failure: collectives are
// then in flight whose memory is freed. library: path of MPI's library, if it is not loaded by its
// own name. Fails as MpiLibrary does, with FailedPrecondition after a failure in this process, with
// DeadlineExceeded when other ranks do not come, and with Unimplemented where the core was built
// without mpi.h.
std::unique_ptr<Communicator> mpi_communicator(const std::string& library, double timeout_seconds);

}  // namespace hotrow
