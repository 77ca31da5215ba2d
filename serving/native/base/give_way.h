// Work beside requests: loading, warming up and freeing models.
#pragma once

namespace hotrow_server {

// From here on this thread, and those that it starts, give way to requests. For good.
void give_way();

}  // namespace hotrow_server
