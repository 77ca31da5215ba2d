// Addresses of host names, within a deadline.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace hotrow {

// The IP addresses of a host, IPv4 first; an IP address returns itself. Fails with Unavailable when
// there are none, or when the lookup has not ended at the deadline.
std::vector<std::string> resolve_host(const std::string& host,
                                      std::chrono::steady_clock::time_point deadline);

}  // namespace hotrow
