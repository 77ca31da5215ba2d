// How far rows of other ranks may lag behind their owners (kept_rows.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow {

struct StalenessOptions {
  uint32_t updates = 0;  // s; 0: not at all
  size_t kept_rows = 0;  // of other ranks, at each rank

  bool any() const { return updates > 0; }
};

}  // namespace hotrow
