// The layout of a fused call's features in the inputs of an op. F features, T tables.
#pragma once

#include <string>
#include <vector>

#include "core/abi/c_api.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace hotrow_tf {

// The attributes that all our ops share.
struct Layout {
  std::vector<std::string> tables;    // T: handles (training) or names (serving)
  std::vector<std::string> features;  // F: names, for messages
  std::vector<int32_t> table_of;      // F: index into tables
  std::vector<int32_t> combiners;     // F: 0 none, 1 sum, 2 mean, 3 sqrtn
  std::vector<int32_t> widths;        // T
  std::vector<size_t> sizes;          // T: the widths
  // Fails with InvalidArgument when the lengths do not fit.
  static absl::Status read(tensorflow::OpKernelConstruction* ctx, Layout* layout);
};

// The features of one call, checked; the pointers belong to the input tensors.
// Inputs of an op, in this order: keys: F x int64 [N]; row_splits: F x int64 [B + 1], or [0] when
// sample b has key b alone; weights: F x float32 [N], or [0] when all are 1.
absl::Status read_features(tensorflow::OpKernelContext* ctx, const Layout& layout,
                           std::vector<hr_feature>* features);

// The shape of pooled[f]: (B, D), or (N, D) without a combiner.
tensorflow::TensorShape pooled_shape(const Layout& layout, const std::vector<hr_feature>& features,
                                     size_t f);

// The shape function of lookups: [?, D] for each feature.
absl::Status set_pooled_shapes(tensorflow::shape_inference::InferenceContext* c);

// The status of a call of the core.
absl::Status to_status(int code);
absl::Status to_status(int code, const std::string& message);

// The threads of the op's device, for the core.
class Threads {
 public:
  explicit Threads(tensorflow::OpKernelContext* ctx);
  const hr_executor* executor() const { return &executor_; }

 private:
  hr_executor executor_;
};

}  // namespace hotrow_tf
