// Rows of tensors, along their 0th dimension: batches made of requests, and taken apart again.
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

// One below the other. Their other dimensions are equal.
Tensor concatenate(const std::vector<Rows>& parts);

// As TF Serving merges the inputs of a batch: `more` copies of the last part's first row follow.
// pad: dimensions after the 0th grow to the largest of the parts, filled with the part's own first
// value. Fails with FAILED_PRECONDITION when they differ and are not padded, INVALID_ARGUMENT when
// they cannot be. name: of the input, for messages.
Tensor merge(const std::vector<Rows>& parts, int64_t more, bool pad, const std::string& name);

}  // namespace hotrow_server
