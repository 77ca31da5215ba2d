#include "base/lower_priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hotrow_server {
namespace {

constexpr int kNice = 19;
// What sched_setattr(2) takes; the kernel's own header cannot be included beside the C library's.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t turn_nanos, deadline_nanos, period_nanos;
};
// Linux from 6.12 on lets a thread that wakes wait for the turn of the one that runs, 3 ms, unless
// its own turns are shorter than that one's.
constexpr uint64_t kTurnNanos = 100'000'000;
// A kernel without preemption does nothing else on its CPU until a call of `pread` ends, not even
// what has a higher priority: TensorFlow reads a tensor by one call, and into memory that it never
// touched, of which each page is another fault. 500 MB took 120 ms in which half of all requests
// waited; pieces of this size take 0.1.
constexpr size_t kReadBytes = 32 << 10;

}  // namespace

void lower_priority() {
  SchedulingAttributes attributes{};
  attributes.policy = SCHED_BATCH;
  attributes.nice = kNice;
  attributes.turn_nanos = kTurnNanos;
  if (syscall(SYS_sched_setattr, 0, &attributes, 0u) == 0) return;
  // A sandbox may not know that call.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
}

}  // namespace hotrow_server

// In place of the C library's, for TensorFlow's libraries, too.
extern "C" {

__attribute__((visibility("default"))) ssize_t pread64(int file, void* to, size_t bytes,
                                                       off64_t from) {
  size_t done = 0;
  while (done < bytes) {
    const size_t piece = std::min(bytes - done, hotrow_server::kReadBytes);
    const ssize_t got = syscall(SYS_pread64, file, static_cast<char*>(to) + done, piece,
                                from + static_cast<off64_t>(done));
    if (got < 0 && done == 0) return got;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

__attribute__((visibility("default"))) ssize_t pread(int file, void* to, size_t bytes, off_t from) {
  return pread64(file, to, bytes, from);
}

}  // extern "C"
