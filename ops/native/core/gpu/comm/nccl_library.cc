#include "core/gpu/comm/nccl_library.h"

#include <dlfcn.h>

#include "core/base/status.h"

namespace hotrow {
namespace {

constexpr const char* kOwnName = "libnccl.so.2";

void* open_library(const std::string& path) {
  // Use the library that the process has loaded, for example TensorFlow's.
  if (void* library = ::dlopen(kOwnName, RTLD_NOW | RTLD_NOLOAD)) return library;
  if (!path.empty()) {
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW)) return library;
  }
  if (void* library = ::dlopen(kOwnName, RTLD_NOW)) return library;
  fail(Code::kFailedPrecondition, "no NCCL here (%s): pip install nvidia-nccl-cu12", ::dlerror());
}

template <typename Function>
void find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  if (*function == nullptr) {
    fail(Code::kUnimplemented,
         "NCCL has no %s; 2.14 or newer is needed: pip install "
         "nvidia-nccl-cu12",
         name);
  }
}

}  // namespace

NcclLibrary::NcclLibrary(const std::string& path) {
  void* library = open_library(path);
  find(library, "ncclGetErrorString", &error_string);
  find(library, "ncclGetUniqueId", &unique_id);
  find(library, "ncclCommInitRankConfig", &init);
  find(library, "ncclCommGetAsyncError", &async_error);
  find(library, "ncclCommFinalize", &finalize);
  find(library, "ncclCommDestroy", &destroy);
  find(library, "ncclCommAbort", &abort);
  find(library, "ncclGroupStart", &group_start);
  find(library, "ncclGroupEnd", &group_end);
  find(library, "ncclSend", &send);
  find(library, "ncclRecv", &receive);
}

void NcclLibrary::check(ncclResult_t result, const char* what) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  fail(Code::kInternal, "%s: %s", what, error_string(result));
}

}  // namespace hotrow
