// NCCL's functions, of the library that is found at run time. Only where nccl.h is (CMakeLists).
#pragma once

#include <nccl.h>

#include <string>

namespace hotrow {

// Fails with FailedPrecondition where there is no such library, and with Unimplemented where it is
// too old.
struct NcclLibrary {
  // path: of libnccl.so.2, when it is not found by its own name.
  explicit NcclLibrary(const std::string& path);

  // Fails with Internal, in NCCL's words; not when it is still in progress. what: the call.
  void check(ncclResult_t result, const char* what) const;

  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
};

}  // namespace hotrow
