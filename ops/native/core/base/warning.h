// Warnings for the operator of a process: of failures that the core has handled, so that no call
// reports them.
#pragma once

#include <string>

namespace hotrow {

// Called from any thread. Null, as at the start: warnings are dropped.
using Warn = void (*)(const char* message);
void set_warn(Warn warn);
void warn(const std::string& message);

}  // namespace hotrow
