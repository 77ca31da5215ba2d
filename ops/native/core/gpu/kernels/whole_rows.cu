#include <vector>

#include "core/gpu/kernels/sums.h"
#include "core/gpu/kernels/whole_rows.h"
#include "core/kernels/optimizer_rule.h"

namespace hotrow {
namespace {

struct MeasuredTable {
  const float* sums;
  const float* known_scale;
  const float* clip_squares;  // null: not clipped
  float* out;                 // null: it is not measured
  uint32_t width;
  float scale, clip, l2;
  RowType weights;
  uint32_t unused;
};

// A warp a row.
__global__ void measure_rows(const MeasuredTable* all, uint32_t tables, const uint32_t* table_first,
                             std::byte* const* lines) {
  const uint32_t distinct = table_first[tables];
  const Tile warp = tile_of(kWarp);
  for (size_t u = thread_index() / kWarp; u < distinct; u += thread_stride() / kWarp) {
    const uint32_t number = find_range(table_first, tables, u);
    const MeasuredTable& t = all[number];
    if (t.out == nullptr) continue;
    const size_t row = u - table_first[number];
    const std::byte* const line = lines[u];
    const float scale = t.known_scale == nullptr ? t.scale : *t.known_scale;
    float clip = 1.0f;
    if (t.clip_squares != nullptr) {
      const float norm = sqrtf(t.clip_squares[row]);
      if (norm > t.clip) clip = t.clip / norm;
    }
    RowSum sum;
    for (uint32_t start = 0; start < t.width && line != nullptr; start += 4 * kWarp) {
      const uint32_t column = start + 4 * warp.lane;
      float g[4], w[4] = {}, squares[4];
      load_values<RowType::kFloat32>(reinterpret_cast<const std::byte*>(t.sums + row * t.width),
                                     column, t.width, g);
      if (t.l2 != 0.0f) load_quad(t.weights, line + sizeof(RowHeader), column, t.width, w);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        // As finished_gradient of kernels/optimizer_rule.h.
        float x = g[k] * scale;
        if (clip != 1.0f) x = x * clip;
        if (t.l2 != 0.0f) x = x + t.l2 * w[k];
        squares[k] = x * x;
      }
      sum.add(warp, squares);
    }
    const float total = sum.total(warp);
    if (warp.lane == 0) t.out[row] = line == nullptr ? 0.0f : total;
  }
}

}  // namespace

size_t device_measure_scratch(size_t tables) {
  DeviceArena arena;
  arena.take<MeasuredTable>(tables);
  return arena.used();
}

void device_measure(const DeviceStep* steps, float* const* outs, size_t tables, bool finished,
                    const uint32_t* table_first, std::byte* const* lines, size_t most,
                    void* scratch, size_t bytes, DeviceStream stream) {
  std::vector<MeasuredTable> described;
  for (size_t t = 0; t < tables; ++t) {
    const UpdateStep& step = steps[t].step;
    const UpdateNumbers n = update_numbers(step, false);
    MeasuredTable table = {};
    table.sums = steps[t].sums;
    table.known_scale = steps[t].scale;
    table.clip_squares = finished && n.clip > 0.0f ? step.clip_squares : nullptr;
    table.out = outs[t];
    table.width = static_cast<uint32_t>(step.layout.width);
    table.scale = n.scale;
    table.clip = n.clip;
    table.l2 = finished ? n.l2 : 0.0f;
    table.weights = step.layout.weights;
    described.push_back(table);
  }
  DeviceArena arena(scratch, bytes);
  MeasuredTable* const there = arena.take<MeasuredTable>(tables);
  upload(there, described.data(), tables, stream);
  launch("measure rows", measure_rows, blocks_for(most * kWarp), kBlockThreads, stream, there,
         static_cast<uint32_t>(tables), table_first, lines);
}

}  // namespace hotrow
