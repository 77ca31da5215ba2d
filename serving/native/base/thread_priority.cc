#include "base/thread_priority.h"

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
// The argument of sched_setattr(2); the kernel's own header conflicts with the C library's.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t turn_nanos, deadline_nanos, period_nanos;
};
// Since Linux 6.12 a waking thread waits for the running thread's time slice, 0.7 to 2.8 ms, which
// ends at a tick of 1 to 10 ms, unless its own slices are shorter: then it preempts. Short slices
// for requests, long ones for background work. A kernel before that ignores them.
constexpr uint64_t kShortTurnNanos = 500'000, kLongTurnNanos = 100'000'000;
// A kernel without preemption runs nothing else on its CPU until a `pread` ends, not even threads
// of higher priority. TensorFlow reads a tensor in one call into untouched memory, where each page
// faults. 500 MB took 120 ms, in which half of all requests waited; a piece of this size takes 0.1
// ms.
constexpr size_t kReadBytes = 32 << 10;

// Of this thread. False: a sandbox may not support the call.
bool set_scheduling(uint32_t policy, int nice, uint64_t turn_nanos) {
  SchedulingAttributes attributes{};
  attributes.policy = policy;
  attributes.nice = nice;
  attributes.turn_nanos = turn_nanos;
  return syscall(SYS_sched_setattr, 0, &attributes, 0u) == 0;
}

}  // namespace

void take_short_turns() {
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  // The nice value that the process was started with stays.
  (void)set_scheduling(SCHED_OTHER, getpriority(PRIO_PROCESS, 0), kShortTurnNanos);
}

void lower_priority() {
  if (sched_getscheduler(0) == SCHED_IDLE) return;
  if (set_scheduling(SCHED_BATCH, kNice, kLongTurnNanos)) return;
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
}

}  // namespace hotrow_server

// These replace the C library's functions, for TensorFlow's libraries, too.
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
