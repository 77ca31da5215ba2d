// Sums over ranks in the order of the ranks: the same bits on every rank.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hotrow {

// sum[i] = part(0)[i] + part(1)[i] + ..., left to right. part(r): (count) of rank r; sum: (count);
// it must not overlap a part.
template <typename Value, typename Part>
void sum_in_rank_order(Value* sum, size_t count, int ranks, Part&& part) {
  const Value* first = part(0);
  std::copy(first, first + count, sum);
  for (int r = 1; r < ranks; ++r) {
    const Value* more = part(r);
    for (size_t i = 0; i < count; ++i) sum[i] += more[i];
  }
}

// The values of rank r when `count` are split among ranks: [begin, begin of r + 1).
inline size_t slice_begin(size_t count, int ranks, int r) {
  const size_t n = static_cast<size_t>(ranks), i = static_cast<size_t>(r);
  return count / n * i + std::min(count % n, i);
}

}  // namespace hotrow
