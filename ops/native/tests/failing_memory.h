// Memory that ends: allocations and mappings of a thread fail from the n-th on.
#pragma once

#include <cstdint>

namespace hotrow {

// While it lives, the calling thread's allocations are counted from 0, and number `from` fails, as
// do those after it with `all`. Only where kFailingMemory is true.
class FailingMemory {
 public:
  FailingMemory(int64_t from, bool all);
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  bool failed() const;
};

// Sanitizers have allocators of their own.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kFailingMemory = false;
#else
constexpr bool kFailingMemory = true;
#endif

}  // namespace hotrow
