// The kernels for every CPU. Compiler flags: CMakeLists.txt.
#define HOTROW_ISA plain
#define HOTROW_ISA_NAME "plain"
#include "core/kernels_impl.h"
