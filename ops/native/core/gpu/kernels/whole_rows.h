// Squares of the gradients of rows whose columns lie at several ranks: scheme kColumn, with
// row-wise Adagrad or a row's norm to clip (docs/design/0009-ranks.md). The sibling of
// Kernels::measure, with its bits. U distinct keys of a table, D width.
#pragma once

#include "core/gpu/kernels/update.h"

namespace hotrow {

size_t device_measure_scratch(size_t tables);
// outs[t]: (U of the table), or null: it is not measured. A row without a line has 0. finished:
// after the clip, with L2; else of gradients as they came, times scale. steps, outs: (T) on the
// host; the sums of the measured tables are there. table_first: (T + 1). lines: (U of all). most:
// at least U of all.
void device_measure(const DeviceStep* steps, float* const* outs, size_t tables, bool finished,
                    const uint32_t* table_first, std::byte* const* lines, size_t most,
                    void* scratch, size_t bytes, DeviceStream stream);

}  // namespace hotrow
