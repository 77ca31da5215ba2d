// MPI's functions, of the library that this process has loaded. Only where mpi.h is (CMakeLists).
#pragma once

#include <mpi.h>

#include <string>

#ifndef MPICH_NUMVERSION
#error "mpi.h is not of MPICH, whose binary interface this is compiled for: pip install mpich"
#endif

namespace hotrow {

// Fails with FailedPrecondition when MPI is not initialised in this library, or not for several
// threads, and with Unimplemented when it is older than MPI 4.
struct MpiLibrary {
  // path: of the library when none is loaded under its own name.
  explicit MpiLibrary(const std::string& path);

  // Fails with Internal, in MPI's words. what: the call.
  void check(int code, const char* what) const;
  bool is_finalized() const;
  // Removes the names of the memory that MPICH shares among the processes of a machine, once all
  // have it. MPICH removes them when it is finalised, which a process that fails or is killed does
  // not do.
  void remove_shared_memory_names() const;

  decltype(&MPI_Initialized) initialized;
  decltype(&MPI_Finalized) finalized;
  decltype(&MPI_Query_thread) query_thread;
  decltype(&MPI_Error_string) error_string;
  decltype(&MPI_Comm_rank) comm_rank;
  decltype(&MPI_Comm_size) comm_size;
  decltype(&MPI_Comm_idup) comm_idup;
  decltype(&MPI_Comm_free) comm_free;
  decltype(&MPI_Comm_set_errhandler) comm_set_errhandler;
  decltype(&MPI_Test) test;
  decltype(&MPI_Isend) isend;
  decltype(&MPI_Improbe) improbe;
  decltype(&MPI_Get_count) get_count;
  decltype(&MPI_Mrecv) mrecv;
  decltype(&MPI_Ialltoallv_c) ialltoallv;
  decltype(&MPI_Ibcast_c) ibcast;
  decltype(&MPI_Ibarrier) ibarrier;
};

}  // namespace hotrow
