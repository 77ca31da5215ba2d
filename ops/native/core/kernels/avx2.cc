// The kernels for CPUs with AVX2. Compiler flags: CMakeLists.txt.
#if defined(__x86_64__) && !defined(HOTROW_PLAIN_KERNELS)
#if !defined(__AVX2__)
#error "compile this file with the flags of ops/native/CMakeLists.txt"
#endif
#define HOTROW_ISA avx2
#define HOTROW_ISA_NAME "avx2"
#include "core/kernels/impl.h"
#endif
