// What the training ops have in common, wherever their tables are. F features, T tables.
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

// It points to what it is made of.
hr_layer_call call_of(const Tables& tables, const Layout& layout,
                      const std::vector<hr_feature>& features, const Threads& threads);

// The first F outputs; where their memory is, the op's device says.
absl::Status allocate_pooled(tensorflow::OpKernelContext* ctx, const Layout& layout,
                             const std::vector<hr_feature>& features, std::vector<float*>* pooled);

// The inputs `gradients`, F, of the shapes of the pooled values.
absl::Status read_gradients(tensorflow::OpKernelContext* ctx, const Layout& layout,
                            const std::vector<hr_feature>& features,
                            std::vector<const float*>* gradients);

// Inputs in host memory. learning_rates: (T); ticket: a scalar.
absl::Status check_learning_rates(const tensorflow::Tensor& rates, size_t tables);
absl::Status check_ticket(const tensorflow::Tensor& ticket);
// (HR_SLOTS).
absl::Status check_commit_token(const tensorflow::Tensor& commit_token);
// The anchor never changes: whoever writes to it goes past the tables.
absl::Status check_anchor(const tensorflow::Tensor& anchor);

// The unit in its slot, 0 elsewhere.
void write_commit_token(size_t slot, tensorflow::Tensor* commit_token);

}  // namespace hotrow_tf
