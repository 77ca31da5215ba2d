// Replaces comm/mpi_communicator.cc where there is no mpi.h.
#include "core/comm/mpi_communicator.h"

namespace hotrow {

std::unique_ptr<Communicator> mpi_communicator(const std::string&, double) {
  fail(Code::kUnimplemented,
       "hotrow was built without mpi.h and has no ranks in other processes: pip install mpich, "
       "then build it again");
}

}  // namespace hotrow
