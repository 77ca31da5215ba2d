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

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fail(error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal, "%s: %s",
       what, cudaGetErrorString(error));
}

}  // namespace hotrow
