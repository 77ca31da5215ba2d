// Gather and pooling on the device: all features of all tables, of any widths and row types, in one
// launch. The sibling of kernels/pooling.h and Kernels::gather: the same order of additions, the
// same bits (but for the payload of NaN).
//
// N keys of the whole call, U distinct ones (gpu/kernels/unique.h), B samples, D width.
#pragma once

#include "core/gpu/kernels/described.h"
#include "core/gpu/kernels/memory.h"
#include "core/kernels/pooling.h"
#include "core/kernels/row_line.h"

namespace hotrow {

// All pointers but `features`: on the device.
struct DeviceFeature {
  Segments segments;     // row_splits and weights on the device; splits that descend are cut
  size_t first_key = 0;  // position of its first key among the N
  size_t width = 0;      // D
  RowType weights = RowType::kFloat32;
  const std::byte* default_line = nullptr;  // a header and line, for keys without a row
  bool bare = false;                        // lines are of weights alone, without headers
  float* pooled = nullptr;  // (B, D), or (N of the feature, D) without a combiner; null: not wanted
};

// Features for kernels, on the device.
struct DevicePieces {
  const void* pieces = nullptr;
  uint32_t count = 0, blocks = 0;  // blocks 0: there is nothing to do
};
// features: (count) on the host.
DevicePieces describe_pool(const DeviceFeature* features, size_t count, DeviceDescribed* to);

// pooled[b, :] of each feature, from the lines of the distinct keys.
// lines: (U) pointers to headers, null: the default line. inverse: (N).
void device_pool(const DevicePieces& pieces, const std::byte* const* lines, const int32_t* inverse,
                 const DeviceIf& condition, DeviceStream stream);
// The same for features that are described now.
size_t device_pool_scratch(size_t features);
void device_pool(const DeviceFeature* features, size_t count, const std::byte* const* lines,
                 const int32_t* inverse, void* scratch, size_t bytes, DeviceStream stream);

// The way back: rows[i] and shares[i] such that the gradient of key i is shares[i] * rows[i].
// Null rows are zeros (of samples whose divisor is 0).
struct DeviceTerms {
  const float** rows = nullptr;  // (N) pointers to (D)
  float* shares = nullptr;       // (N), or null when each feature's pooled values are its rows

  // Room for count = N.
  static DeviceTerms take(DeviceArena& arena, size_t count, bool shares);
};

// Of features whose `pooled` is not written, and gradients[f]: as pooled (host array of pointers to
// the device).
DevicePieces describe_terms(const DeviceFeature* features, const float* const* gradients,
                            size_t count, DeviceDescribed* to);
void device_terms(const DevicePieces& pieces, const DeviceTerms& out, DeviceStream stream);
// The same for features that are described now.
void device_terms(const DeviceFeature* features, const float* const* gradients, size_t count,
                  const DeviceTerms& out, void* scratch, size_t bytes, DeviceStream stream);

}  // namespace hotrow
