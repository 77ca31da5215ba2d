// A feature of a fused call: its keys and how they form samples.
#pragma once

#include <cstdint>

#include "core/kernels/pooling.h"

namespace hotrow {

struct Feature {
  const char* name = "";  // for messages
  const int64_t* keys = nullptr;
  Segments segments;
  // (N) how many lookups each key stands for, when another rank made the keys distinct. Null: one
  // each.
  const uint32_t* counts = nullptr;
};

}  // namespace hotrow
