// Work beside requests: loading, warming up and freeing models.
#pragma once

namespace hotrow_server {

// From here on this thread, and those that it starts, run at a lower priority than requests. For
// good.
void lower_priority();

}  // namespace hotrow_server
