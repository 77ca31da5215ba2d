// What a table is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/kernels/optimizer.h"
#include "core/kernels/row_init.h"
#include "core/kernels/row_line.h"
#include "core/table/admission.h"
#include "core/table/row_cache.h"

namespace hotrow {

// When rows expire, in steps of the table. 0: never for that reason.
struct ExpiryOptions {
  uint32_t after_steps = 0;       // a row that was not updated for more steps
  uint32_t rare_count = 0;        // a row that was looked up fewer times and
  uint32_t rare_after_steps = 0;  // was not updated for more steps than this
  uint32_t sweep_steps = 1000;    // every row is checked once in this many steps
  uint64_t tombstones = 4000000;  // the most that are kept; beyond it the older half is dropped

  bool any() const { return after_steps != 0 || rare_count != 0; }
};

enum class CacheDevice : int { kRam = 0, kGpu = 1 };

// The device tier. Its options do not change the values of rows.
struct CacheOptions {
  size_t rows = 0;  // 0: none
  CachePolicy policy = CachePolicy::kLfu;
  CacheDevice device = CacheDevice::kRam;  // kGpu: steps are those of gpu/step/layer.h
  int gpu = 0;                             // kGpu: its CUDA device number
  // kGpu: bytes of rows that prefetching and settle_ahead move while they hold the table's lock.
  size_t piece_bytes = size_t{8} << 20;
};

struct TableOptions {
  size_t width = 0;              // D: weights of a row
  int64_t vocabulary_size = -1;  // keys in [0, vocabulary_size); -1: every key
  float default_value = 0.0f;    // of the row that an unknown key reads
  RowInit init;
  Optimizer optimizer;
  RowType weights = RowType::kFloat32;
  RowType state = RowType::kFloat32;
  AdmissionOptions admission;
  ExpiryOptions expiry;
  CacheOptions cache;
  // Where the lines of rows that are not in the device tier lie: in files in this directory, or in
  // memory when empty. Needs a device tier.
  std::string disk;

  LineLayout layout() const {
    return {width, weights, state, optimizer.state_vectors(), optimizer.state_scalars()};
  }
};

}  // namespace hotrow
