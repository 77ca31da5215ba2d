#include "tf/training_inputs.h"

namespace hotrow_tf {
namespace tf = tensorflow;

Tables::~Tables() {
  for (hr_table* table : raw_) hr_table_release(table);
}

absl::Status Tables::open(const std::vector<std::string>& handles) {
  for (const std::string& handle : handles) {
    hr_table* table = nullptr;
    TF_RETURN_IF_ERROR(to_status(hr_table_open(handle.c_str(), &table)));
    raw_.push_back(table);
  }
  return absl::OkStatus();
}

hr_layer_call call_of(const Tables& tables, const Layout& layout,
                      const std::vector<hr_feature>& features, const Threads& threads) {
  return {tables.data(),   layout.sizes.data(), tables.size(),
          features.data(), features.size(),     threads.executor()};
}

absl::Status allocate_pooled(tf::OpKernelContext* ctx, const Layout& layout,
                             const std::vector<hr_feature>& features, std::vector<float*>* pooled) {
  pooled->clear();
  for (size_t f = 0; f < features.size(); ++f) {
    tf::Tensor* out = nullptr;
    TF_RETURN_IF_ERROR(
        ctx->allocate_output(static_cast<int>(f), pooled_shape(layout, features, f), &out));
    pooled->push_back(out->flat<float>().data());
  }
  return absl::OkStatus();
}

absl::Status read_gradients(tf::OpKernelContext* ctx, const Layout& layout,
                            const std::vector<hr_feature>& features,
                            std::vector<const float*>* gradients) {
  tf::OpInputList inputs;
  TF_RETURN_IF_ERROR(ctx->input_list("gradients", &inputs));
  gradients->clear();
  for (size_t f = 0; f < features.size(); ++f) {
    const tf::Tensor& input = inputs[static_cast<int>(f)];
    const tf::TensorShape wanted = pooled_shape(layout, features, f);
    if (input.shape() != wanted) {
      return absl::InvalidArgumentError("feature " + layout.features[f] + ": gradient of shape " +
                                        input.shape().DebugString() + ", must be " +
                                        wanted.DebugString());
    }
    gradients->push_back(input.flat<float>().data());
  }
  return absl::OkStatus();
}

absl::Status check_learning_rates(const tf::Tensor& rates, size_t tables) {
  if (rates.dims() == 1 && static_cast<size_t>(rates.NumElements()) == tables) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("learning_rates must have shape [" + std::to_string(tables) +
                                    "]; it has " + rates.shape().DebugString());
}

absl::Status check_ticket(const tf::Tensor& ticket) {
  if (ticket.dims() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError("ticket must be a scalar");
}

absl::Status check_commit_token(const tf::Tensor& commit_token) {
  if (commit_token.dims() == 1 && commit_token.dim_size(0) == HR_SLOTS) return absl::OkStatus();
  return absl::InvalidArgumentError("the anchor must have shape [256]; it has " +
                                    commit_token.shape().DebugString());
}

absl::Status check_anchor(const tf::Tensor& anchor) {
  TF_RETURN_IF_ERROR(check_commit_token(anchor));
  for (int slot = 0; slot < HR_SLOTS; ++slot) {
    if (anchor.flat<float>()(slot) != HR_UNCHANGED) {
      return absl::FailedPreconditionError(
          "the anchor of the embedding layer was written to past Keras, so its rows are not "
          "trained; give the optimizer layer.trainable_variables themselves, not their .value");
    }
  }
  return absl::OkStatus();
}

void write_commit_token(size_t slot, tf::Tensor* commit_token) {
  commit_token->flat<float>().setZero();
  commit_token->flat<float>()(static_cast<int64_t>(slot)) = HR_UNIT;
}

}  // namespace hotrow_tf
