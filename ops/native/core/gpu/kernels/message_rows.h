// Rows in the messages of ranks that receive whole batches (docs/design/0009-ranks.md): copies, the
// columns of each rank, and partial sums. R ranks, D width of whole rows.
#pragma once

#include "core/gpu/kernels/memory.h"

namespace hotrow {

// A copy of `rows` rows of `words` values of 4 bytes; strides in words. All on the device, and no
// copy writes what another reads.
struct DeviceRowCopy {
  const void* from = nullptr;
  void* to = nullptr;
  size_t rows = 1, words = 0;
  size_t from_stride = 0, to_stride = 0;
  bool sums = false;  // of float32 that begin at 0: -0 becomes 0

  // One row.
  static DeviceRowCopy of(const void* from, void* to, size_t words) {
    return {from, to, 1, words, words, words, false};
  }
};

size_t device_copy_rows_scratch(size_t copies);
// copies: (count) on the host.
void device_copy_rows(const DeviceRowCopy* copies, size_t count, void* scratch, size_t bytes,
                      DeviceStream stream);

// Gradients of whole rows that are cut into the columns of the ranks; the first D mod R ranks have
// one more.
struct DeviceColumnCut {
  const float* from = nullptr;  // (rows, D)
  size_t rows = 0, width = 0;
};

size_t device_cut_columns_scratch(size_t cuts, size_t ranks);
// cuts: (count) on the host. to: (count, R) on the host, to (rows, columns of the rank). A row with
// a value that is not finite gets a NaN among the columns of each rank, so that all ranks leave the
// same rows as they were.
void device_cut_columns(const DeviceColumnCut* cuts, float* const* to, size_t count, size_t ranks,
                        void* scratch, size_t bytes, DeviceStream stream);

// out[i] = parts[0][i] + parts[1][i] + ..., in the order of the ranks.
struct DevicePartSum {
  float* out = nullptr;
  size_t values = 0;
};

size_t device_add_parts_scratch(size_t sums, size_t ranks);
// sums: (count) on the host. parts: (count, R) on the host, to (values).
void device_add_parts(const DevicePartSum* sums, const float* const* parts, size_t count,
                      size_t ranks, void* scratch, size_t bytes, DeviceStream stream);

}  // namespace hotrow
