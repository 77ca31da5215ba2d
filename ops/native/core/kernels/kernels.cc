#include "core/kernels/kernels.h"

#include <cstring>

namespace hotrow {

namespace plain {
extern const Kernels table;
}
#if defined(__x86_64__) && !defined(HOTROW_PLAIN_KERNELS)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif

const Kernels* kernels_named(const char* name) {
  if (strcmp(name, "plain") == 0) return &plain::table;
#if defined(__x86_64__) && !defined(HOTROW_PLAIN_KERNELS)
  if (strcmp(name, "avx2") == 0) {
    const bool supported = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return supported ? &avx2::table : nullptr;
  }
  if (strcmp(name, "avx512") == 0) {
    const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return has ? &avx512::table : nullptr;
  }
#endif
  return nullptr;
}

const Kernels& kernels() {
  static const Kernels* const fastest = [] {
    for (const char* name : {"avx512", "avx2"}) {
      if (const Kernels* found = kernels_named(name)) return found;
    }
    return kernels_named("plain");
  }();
  return *fastest;
}

}  // namespace hotrow
