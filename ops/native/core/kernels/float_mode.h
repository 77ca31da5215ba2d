// IEEE arithmetic in every calling thread: TensorFlow's threads flush denormals to zero, and rows
// must not depend on the thread that updates them.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hotrow {
namespace {

// During its lifetime: round to nearest even, denormals kept. On CPUs other than x86-64 the
// caller's mode stays.
class IeeeFloatMode {
 public:
#if defined(__x86_64__)
  IeeeFloatMode() : saved_(_mm_getcsr()) { set(kIeee | (saved_ & kFlags)); }
  ~IeeeFloatMode() { set(saved_); }
#else
  IeeeFloatMode() {}
#endif
  IeeeFloatMode(const IeeeFloatMode&) = delete;
  IeeeFloatMode& operator=(const IeeeFloatMode&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint32_t kIeee = 0x1f80;  // the value of a new process
  static constexpr uint32_t kFlags = 0x3f;   // exceptions seen so far
  // Writing it takes longer than reading it.
  static void set(uint32_t mode) {
    if ((_mm_getcsr() & ~kFlags) != (mode & ~kFlags)) _mm_setcsr(mode);
  }
  uint32_t saved_;
#endif
};

}  // namespace
}  // namespace hotrow
