#include "core/base/warning.h"

#include <atomic>

namespace hotrow {
namespace {

std::atomic<Warn> handler{nullptr};

}  // namespace

void set_warn(Warn warn) { handler.store(warn); }

void warn(const std::string& message) {
  if (const Warn to = handler.load()) to(message.c_str());
}

}  // namespace hotrow
