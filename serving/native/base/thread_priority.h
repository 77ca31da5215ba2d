// Which threads go first: those of requests before background work (loading, warming up and freeing
// models) and before other processes.
#pragma once

namespace hotrow_server {

// From now on this thread, and threads that it starts, preempt running threads of the same priority
// when they wake, as work for a request comes. A scheduling policy with which the process was
// started (chrt) stays.
void take_short_turns();

// From now on this thread, and threads that it starts, run at a lower priority than requests, and
// without a real-time policy. It cannot be undone.
void lower_priority();

}  // namespace hotrow_server
