// CUDA's runtime and its errors, for the files that call it. In the emulated build (tests/simt)
// simt.h stands in for it.
#pragma once

#if defined(HOTROW_SIMT)
#include "simt.h"
#else
#include <cuda_runtime.h>
#endif

#include "core/base/status.h"

namespace hotrow {

// A failed call stays the thread's last error until it is read; the check after the next launch
// would report it as that kernel's. So whoever handles a failure forgets it.
inline void forget_last_error() { (void)cudaGetLastError(); }

// Of a call whose failure changes nothing for its caller.
inline void ignore(cudaError_t error) {
  if (error != cudaSuccess) forget_last_error();
}

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  forget_last_error();
  fail(error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal, "%s: %s",
       what, cudaGetErrorString(error));
}

}  // namespace hotrow
