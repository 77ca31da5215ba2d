// Backward on the device: gradients are summed per distinct key and the optimizers applied, all
// tables of a layer together. The sibling of Kernels::sum and Kernels::update: sums in the order of
// the keys, the same arithmetic, the same random bits, so the same bits in the rows (but for the
// payload of NaN).
//
// N keys of T tables, U distinct ones (gpu/kernels/unique.h), D width. All pointers but arrays of
// steps and sums: on the device.
#pragma once

#include "core/gpu/kernels/described.h"
#include "core/gpu/kernels/memory.h"
#include "core/kernels/kernels.h"

namespace hotrow {

// The gradient rows of a feature whose pooled values are its rows: that of the key at position p is
// rows + (p - first) * D. Without `rows`: those of DeviceGradients.
struct DevicePlainRows {
  const float* rows = nullptr;
  uint64_t first = 0;  // position of its first key
};

// The gradient of row u is the sum, in this order, of shares[p] * rows[p] for p = order[j],
// begins[u] <= j < begins[u + 1].
struct DeviceGradients {
  const float* const* rows = nullptr;  // (N) pointers to (D); null: zeros
  const float* shares = nullptr;       // (N), or null: all 1
  const uint32_t* begins = nullptr;    // (U + 1)
  const uint32_t* order = nullptr;     // (N)
  size_t count = 0;                    // N
  // The features of plain gradient rows, and others among them; null: there are none. The shares of
  // plain rows are 1, and neither `rows` nor `shares` is read for them.
  const DevicePlainRows* plain = nullptr;  // (F) in the order of their keys
  const uint32_t* plain_first = nullptr;   // (T + 1) features before those of table t
};

// The step of one table. step.corrections and squares: on the device.
struct DeviceStep {
  UpdateStep step;
  // Sums of device_sum, (U of the table, D), instead of the gradients; or null.
  const float* sums = nullptr;
  // One value on the device, instead of step.scale; or null.
  const float* scale = nullptr;
  // (2) on the device; the numbers of rows with a line, and of those left out, are added. Or null.
  uint64_t* counts = nullptr;
};

// The output of a table's sums: (U of the table, D).
struct DeviceSums {
  size_t width = 0;
  float* sums = nullptr;
};

// Steps for kernels, on the device.
struct DescribedSteps {
  void* all = nullptr;         // (T)
  uint32_t* widths = nullptr;  // (T)
};
// steps: (T) on the host.
DescribedSteps describe_steps(const DeviceStep* steps, size_t tables, DeviceDescribed* to);

// most_width: of the tables.
size_t device_update_scratch(size_t count, size_t most_width);

// Updates lines[u], and its header, as Kernels::update does: a row that would not be finite stays
// as it was. One launch for each kind of optimizer
// and row type among the tables; usually one.
// steps: (T) on the host. table_first: (T + 1). counts: (U) lookups, or null: the number of
// gradient rows. lines: (U) pointers to headers, distinct; null: no row, its gradient is dropped.
void device_update(const DeviceStep* steps, size_t tables, const DescribedSteps& described,
                   const uint32_t* table_first, const DeviceGradients& gradients,
                   const uint32_t* counts, std::byte* const* lines, void* scratch, size_t bytes,
                   DeviceStream stream);

// Sums for kernels, on the device.
struct DescribedSums {
  const void* all = nullptr;         // (T)
  const uint32_t* widths = nullptr;  // (T)
  size_t tables = 0, most_width = 0;
};
// sums: (T) on the host.
DescribedSums describe_sums(const DeviceSums* sums, size_t tables, DeviceDescribed* to);

size_t device_sum_scratch(size_t count, size_t tables, size_t most_width);
// Writes the sums alone, for gradients that wait for a commit.
void device_sum(const DescribedSums& sums, const uint32_t* table_first,
                const DeviceGradients& gradients, void* scratch, size_t bytes, DeviceStream stream);
// The same for sums that are described now. sums: (T) on the host.
void device_sum(const DeviceSums* sums, size_t tables, const uint32_t* table_first,
                const DeviceGradients& gradients, void* scratch, size_t bytes, DeviceStream stream);

// Gradient rows above which a row is summed by blocks of its own, in the same order.
constexpr uint32_t kHotTerms = 128;

}  // namespace hotrow
