// Inputs and outputs that all training ops share, wherever their tables are. F features, T tables.
#pragma once

#include <string>
#include <vector>

#include "core/abi/c_api.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/op_features.h"

namespace hotrow_tf {

// References to the tables of a call.
class Tables {
 public:
  Tables() = default;
  ~Tables();
  Tables(const Tables&) = delete;
  absl::Status open(const std::vector<std::string>& handles);
  hr_table* const* data() const { return raw_.data(); }
  size_t size() const { return raw_.size(); }

 private:
  std::vector<hr_table*> raw_;
};

// The call points into its arguments.
hr_layer_call call_of(const Tables& tables, const Layout& layout,
                      const std::vector<hr_feature>& features, const Threads& threads);

// Allocates the first F outputs, in the memory of the op's device.
absl::Status allocate_pooled(tensorflow::OpKernelContext* ctx, const Layout& layout,
                             const std::vector<hr_feature>& features, std::vector<float*>* pooled);

// Reads the F inputs `gradients`, which have the shapes of the pooled values.
absl::Status read_gradients(tensorflow::OpKernelContext* ctx, const Layout& layout,
                            const std::vector<hr_feature>& features,
                            std::vector<const float*>* gradients);

// Inputs in host memory. learning_rates: (T); ticket: a scalar.
absl::Status check_learning_rates(const tensorflow::Tensor& rates, size_t tables);
absl::Status check_ticket(const tensorflow::Tensor& ticket);
// (HR_SLOTS).
absl::Status check_commit_token(const tensorflow::Tensor& commit_token);
// The anchor never changes: code that writes to it bypasses the tables.
absl::Status check_anchor(const tensorflow::Tensor& anchor);

// Writes the unit in its slot, 0 elsewhere.
void write_commit_token(size_t slot, tensorflow::Tensor* commit_token);

}  // namespace hotrow_tf
