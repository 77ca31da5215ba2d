// How a table is split over the ranks of a run (docs/design/0009-ranks.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/base/dispatch.h"
#include "core/comm/collectives.h"
#include "core/table/staleness.h"

namespace hotrow {

enum class Scheme : int {
  kRow = 0,           // a rank has whole rows: key mod ranks is the owner
  kColumn = 1,        // a rank has some columns of every row
  kRowBroadcast = 2,  // as kRow; keys go to all ranks, partial sums return
  kTable = 3,         // one rank has all rows
  kReplicated = 4,    // every rank has all rows
};

inline const char* scheme_name(Scheme scheme) {
  constexpr const char* kNames[] = {"row", "column", "row_broadcast", "table", "replicated"};
  return kNames[static_cast<size_t>(scheme)];
}

// R ranks. A table without ranks is whole.
struct Sharding {
  std::shared_ptr<Collectives> ranks;  // null: there are none
  Scheme scheme = Scheme::kRow;
  int32_t owner = 0;           // kTable: the rank that has it
  bool hashed = false;         // the mixed key determines the owner
  size_t width = 0;            // D: of whole rows
  StalenessOptions staleness;  // kRow, kTable

  int rank() const { return ranks == nullptr ? 0 : ranks->rank(); }
  int size() const { return ranks == nullptr ? 1 : ranks->size(); }
  // The columns that a rank has; the first D mod R ranks have one more.
  size_t first_column(int rank) const {
    if (scheme != Scheme::kColumn) return 0;
    const size_t r = static_cast<size_t>(rank), ranks = static_cast<size_t>(size());
    return r * (width / ranks) + (r < width % ranks ? r : width % ranks);
  }
  size_t columns(int rank) const {
    if (scheme != Scheme::kColumn) return width;
    const size_t r = static_cast<size_t>(rank), ranks = static_cast<size_t>(size());
    return width / ranks + (r < width % ranks ? 1 : 0);
  }
  // The rank that has the row of a key, or this rank when all ranks have (a part of) it.
  int32_t owner_of(int64_t key) const {
    switch (scheme) {
      case Scheme::kRow:
      case Scheme::kRowBroadcast:
        return hotrow::owner_of(key, size(), hashed);
      case Scheme::kTable:
        return owner;
      default:
        return rank();
    }
  }
};

}  // namespace hotrow
