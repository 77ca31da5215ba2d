// The kernels for every CPU. Compiler flags: CMakeLists.txt.
#define HOTROW_ISA plain
#if defined(__x86_64__) && !defined(HOTROW_ONE_WIDTH)
#define HOTROW_ONE_WIDTH  // rarely the fastest here; it compiles in half the time
#endif
#define HOTROW_ISA_NAME "plain"
#include "core/kernels/impl.h"
