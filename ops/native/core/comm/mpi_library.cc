#include "core/comm/mpi_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <fstream>

#include "core/base/status.h"

namespace hotrow {
namespace {

// MPICH, and libraries with its binary interface: Intel MPI, MVAPICH, Cray MPICH.
constexpr const char* kOwnName = "libmpi.so.12";

void* open_library(const std::string& path) {
  // Use the loaded library: another copy would be another MPI.
  if (void* library = ::dlopen(kOwnName, RTLD_NOW | RTLD_NOLOAD)) return library;
  if (void* library = ::dlopen(path.c_str(), RTLD_NOW)) return library;
  fail(Code::kFailedPrecondition, "no MPI of MPICH's binary interface here (%s): pip install mpich",
       ::dlerror());
}

template <typename Function>
void find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  if (*function == nullptr) {
    fail(Code::kUnimplemented, "the MPI library has no %s; MPI 4 is needed: pip install mpich",
         name);
  }
}

}  // namespace

MpiLibrary::MpiLibrary(const std::string& path) {
  void* library = open_library(path);
  find(library, "MPI_Initialized", &initialized);
  find(library, "MPI_Finalized", &finalized);
  find(library, "MPI_Query_thread", &query_thread);
  find(library, "MPI_Error_string", &error_string);
  find(library, "MPI_Comm_rank", &comm_rank);
  find(library, "MPI_Comm_size", &comm_size);
  find(library, "MPI_Comm_idup", &comm_idup);
  find(library, "MPI_Comm_free", &comm_free);
  find(library, "MPI_Comm_set_errhandler", &comm_set_errhandler);
  find(library, "MPI_Test", &test);
  find(library, "MPI_Isend", &isend);
  find(library, "MPI_Improbe", &improbe);
  find(library, "MPI_Get_count", &get_count);
  find(library, "MPI_Mrecv", &mrecv);
  find(library, "MPI_Ialltoallv_c", &ialltoallv);
  find(library, "MPI_Ibcast_c", &ibcast);
  find(library, "MPI_Ibarrier", &ibarrier);
  int yes = 0, level = 0;
  check(initialized(&yes), "MPI_Initialized");
  if (!yes) {
    fail(Code::kFailedPrecondition,
         "MPI is not initialised in %s: mpi4py uses another library; remove MPI4PY_MPIABI and "
         "MPI4PY_LIBMPI, or set MPI4PY_MPIABI=mpich",
         kOwnName);
  }
  if (is_finalized()) fail(Code::kFailedPrecondition, "MPI was finalised in this process already");
  check(query_thread(&level), "MPI_Query_thread");
  if (level < MPI_THREAD_MULTIPLE) {
    fail(Code::kFailedPrecondition,
         "MPI was initialised with thread level %d; MPI_THREAD_MULTIPLE "
         "is needed: leave mpi4py.rc.thread_level as it is",
         level);
  }
}

bool MpiLibrary::is_finalized() const {
  int yes = 0;
  check(finalized(&yes), "MPI_Finalized");
  return yes != 0;
}

void MpiLibrary::remove_shared_memory_names() const {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find("/dev/shm/mpich_shm_");
    // One of several processes removes the file; the others find none.
    if (path != std::string::npos) ::unlink(line.c_str() + path);
  }
}

void MpiLibrary::check(int code, const char* what) const {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  error_string(code, text, &length);
  fail(Code::kInternal, "%s: %s", what, text);
}

}  // namespace hotrow
