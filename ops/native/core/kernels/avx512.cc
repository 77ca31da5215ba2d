// The kernels for CPUs with AVX-512 F, BW, DQ and VL. Compiler flags: CMakeLists.txt.
#if defined(__x86_64__) && !defined(HOTROW_PLAIN_KERNELS)
#if !defined(__AVX512BW__)
#error "compile this file with the flags of ops/native/CMakeLists.txt"
#endif
#define HOTROW_ISA avx512
#define HOTROW_ISA_NAME "avx512"
#include "core/kernels/impl.h"
#endif
