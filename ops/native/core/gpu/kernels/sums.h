// How kernels sum the gradient rows of a row: a tile of lanes, four columns each. For hot rows,
// which have very many, sum_hot_rows has summed them with whole blocks.
#pragma once

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/rows.h"
#include "core/gpu/kernels/update.h"

namespace hotrow {

struct HotRows {
  uint32_t* count;    // one: how many there are
  uint32_t* rows;     // (capacity): distinct keys
  uint32_t* number;   // (U): which of the hot rows; only theirs are set
  float* sums;        // (capacity, stride)
  uint32_t stride;    // the widest table's width
  uint32_t capacity;  // N / (kHotTerms + 1): there cannot be more
};

namespace {

// Gradient rows that are in flight together.
constexpr uint32_t kTermsAhead = 4;
// A warp works on no fewer rows together, so that tiles of 4 lanes have one each.
constexpr uint32_t kLeastRows = 8;

// The gradient rows of a row: order[begin..end), or one row that is the sum.
struct Terms {
  const float* sum;
  uint32_t begin, end;
  uint32_t position;  // order[begin + lane of the tile], if that is before `end`
};

// Which rows a warp takes together: as many as it has lanes, which load what each needs, or fewer
// where that would leave warps without any.
__device__ inline uint32_t rows_together(uint32_t distinct) {
  const size_t warps = thread_stride() / kWarp;
  uint32_t rows = kWarp;
  while (rows > kLeastRows && warps * rows >= size_t{distinct} * 2) rows /= 2;
  return rows;
}

// The position for a tile's row, loaded while the row before is summed. begin, end: of the row.
__device__ inline uint32_t position_ahead(const DeviceGradients& g, const Tile& tile,
                                          uint32_t begin, uint32_t end) {
  const bool is = end - begin <= kHotTerms && begin + tile.lane < end;
  return is ? g.order[begin + tile.lane] : 0;
}

// The gradient row of the key at a position, which is one of a table's; null: zeros.
__device__ inline const float* gradient_row(const DeviceGradients& g, uint32_t table,
                                            uint32_t position, uint32_t width, float* share) {
  if (g.plain != nullptr) {
    uint32_t low = g.plain_first[table];
    for (uint32_t high = g.plain_first[table + 1] - 1; low < high;) {
      const uint32_t middle = (low + high + 1) / 2;
      if (g.plain[middle].first <= position) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const DevicePlainRows& feature = g.plain[low];
    if (feature.rows != nullptr) {
      *share = 1.0f;
      return feature.rows + (position - feature.first) * width;
    }
  }
  *share = g.shares == nullptr ? 1.0f : g.shares[position];
  return g.rows[position];
}

// sum[k]: column + k of the gradient; 0 past the width. All lanes of the tile come here together.
// once: these columns are not summed again.
__device__ inline void sum_terms(const DeviceGradients& g, uint32_t table, const Tile& tile,
                                 const Terms& terms, uint32_t column, uint32_t width, bool once,
                                 float (&sum)[4]) {
  constexpr RowType kType = RowType::kFloat32;
  if (terms.sum != nullptr) {
    load_values<kType>(reinterpret_cast<const std::byte*>(terms.sum), column, width, sum);
    return;
  }
  // The CPU starts with the first term, and -0 + x is x.
  const float start = terms.begin == terms.end ? 0.0f : -0.0f;
#pragma unroll
  for (int k = 0; k < 4; ++k) sum[k] = start;
  for (uint32_t base = terms.begin; base < terms.end; base += tile.lanes) {
    const uint32_t own = base + tile.lane;
    const float* row = nullptr;
    float share = 1.0f;
    if (own < terms.end) {
      const uint32_t position = base == terms.begin ? terms.position : g.order[own];
      row = gradient_row(g, table, position, width, &share);
    }
    const uint32_t count = terms.end - base < tile.lanes ? terms.end - base : tile.lanes;
    for (uint32_t i = 0; i < count; i += kTermsAhead) {
      uint32_t words[kTermsAhead][4];
#pragma unroll
      for (uint32_t r = 0; r < kTermsAhead; ++r) {
        if (i + r >= count) continue;
        const float* from = tile.from(row, i + r);
        if (from != nullptr) {
          load_words<kType, 4>(reinterpret_cast<const std::byte*>(from), column, width, words[r],
                               once);
        } else {
          words[r][0] = words[r][1] = words[r][2] = words[r][3] = 0;
        }
      }
#pragma unroll
      for (uint32_t r = 0; r < kTermsAhead; ++r) {
        if (i + r >= count) continue;
        const float factor = g.shares == nullptr ? 1.0f : tile.from(share, i + r);
#pragma unroll
        for (int k = 0; k < 4; ++k) sum[k] = sum[k] + factor * float_of_bits(words[r][k]);
      }
    }
  }
}

__device__ inline void use_hot_sum(uint32_t u, const HotRows& hot, Terms* terms) {
  if (terms->end - terms->begin <= kHotTerms) return;
  terms->sum = hot.sums + size_t{hot.number[u]} * hot.stride;
}

// The sum over a row of squares, lanes and tree as in kernels/kernels.h: 16 interleaved sums, in
// the order of the columns, then l with l + 8, l + 4, l + 2, l + 1.
class RowSum {
 public:
  // squares of columns first + 4 lane + k, for first = 0, 4 lanes, ...
  __device__ void add(const Tile& tile, const float (&squares)[4]) {
    for (uint32_t from = 0; from < tile.lanes; from += 4) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        sums_[k] = sums_[k] + tile.from(squares[k], from + tile.lane % 4);
      }
    }
  }
  // The same for all lanes.
  __device__ float total(const Tile& tile) const {
    float s[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      s[k] = sums_[k] + tile.from_xor(sums_[k], 2);
      s[k] = s[k] + tile.from_xor(s[k], 1);
    }
    return (s[0] + s[2]) + (s[1] + s[3]);
  }

 private:
  float sums_[4] = {};  // lane l has columns 4 (l % 4) + k, modulo 16
};

}  // namespace

HotRows take_hot_rows(DeviceArena& arena, size_t count, size_t most_width);

// Sums hot rows of all tables; widths[t]: (T) on the device.
void sum_hot_rows(const uint32_t* widths, size_t tables, const uint32_t* table_first,
                  const DeviceGradients& gradients, const HotRows& hot, DeviceStream stream);

}  // namespace hotrow
