#include "core/serving/layers_to_merge.h"

namespace hotrow {
namespace {

constexpr size_t kFewLayers = 8;
constexpr size_t kNewestLayers = 4;
constexpr size_t kGrowth = 2;

}  // namespace

MergeRange layers_to_merge(const std::vector<size_t>& rows) {
  if (rows.size() <= kFewLayers) return {};
  for (size_t first = kNewestLayers; first + 1 < rows.size(); ++first) {
    size_t last = first + 1;
    for (size_t sum = rows[first]; last < rows.size() && rows[last] < kGrowth * sum; ++last) {
      sum += rows[last];
    }
    // A layer without rows costs a probe, too.
    if (last == first + 1 && rows[first] == 0) ++last;
    if (last > first + 1) return {first, last};
  }
  return {};
}

}  // namespace hotrow
