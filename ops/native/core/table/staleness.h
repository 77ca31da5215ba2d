// How far rows of other ranks may lag behind their owners (table/replica_cache.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow {

struct StalenessOptions {
  uint32_t updates = 0;     // s; 0: not at all
  size_t replica_rows = 0;  // of other ranks, at each rank

  bool any() const { return updates > 0; }
  // How far a row with `count` updates since it was kept may lag, besides the rank's own unsent
  // updates. It is s, and less for a young row, since each update then changes it much.
  uint32_t most_behind(uint32_t count) const {
    constexpr uint32_t kShare = 2;
    return count / kShare < updates ? count / kShare : updates;
  }
  // Whether a row that is `behind` updates older than its owner's, which had `count` updates, is
  // read as it is.
  bool may_stay(int32_t behind, uint32_t count) const {
    return -static_cast<int32_t>(updates) <= behind &&
           behind <= static_cast<int32_t>(most_behind(count));
  }
};

}  // namespace hotrow
