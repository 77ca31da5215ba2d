// Which layers of cuts become one, so that lookups probe few of them.
#pragma once

#include <cstddef>
#include <vector>

namespace hotrow {

// Layers [first, last); none if both are the same.
struct MergeRange {
  size_t first = 0;
  size_t last = 0;
};

// rows: (layers), of each, the newest first. Up to 8 layers stay as they are; of more, the newest 4
// do, and older ones are merged with their neighbours so that each has at least twice the rows of
// the newer one before it. So N cuts leave about 8 + log2(N) layers, and a row is copied about
// log2(N) times (the logarithmic method; Bentley and Saxe, 1980).
MergeRange layers_to_merge(const std::vector<size_t>& rows);

}  // namespace hotrow
