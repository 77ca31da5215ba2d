// Rows of tensors, along their 0th dimension: merges requests into batches, and splits batches.
#pragma once

#include <string>
#include <vector>

#include "wire/tensor.h"

namespace hotrow_server {

struct Rows {
  const TF_Tensor* tensor;
  int64_t first;
  int64_t count;
};

// Concatenates along the 0th dimension. The other dimensions must be equal.
Tensor concatenate(const std::vector<Rows>& parts);

// As TF Serving merges the inputs of a batch: `more` copies of the last part's first row follow.
// pad: dimensions after the 0th grow to the largest of the parts, filled with the part's own first
// value. Fails with FAILED_PRECONDITION when dimensions differ without `pad`, and with
// INVALID_ARGUMENT when they cannot be padded. name: of the input, for messages.
Tensor merge(const std::vector<Rows>& parts, int64_t more, bool pad, const std::string& name);

}  // namespace hotrow_server
