// Background work: loading, warming up and freeing models.
#pragma once

namespace hotrow_server {

// From now on this thread, and threads that it starts, run at a lower priority than requests. It
// cannot be undone.
void lower_priority();

}  // namespace hotrow_server
