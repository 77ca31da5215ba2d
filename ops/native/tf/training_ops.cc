// HotrowLookup, HotrowBackward, HotrowCommit, HotrowTableStep: the training ops. A table is a
// handle in an attribute, resolved in the registry of the core when the op runs.
#include <memory>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/op_features.h"

namespace hotrow_tf {
namespace tf = tensorflow;

namespace {

// References to the tables of a call.
class Tables {
 public:
  ~Tables() {
    for (hr_table* table : raw_) hr_table_release(table);
  }
  absl::Status open(const std::vector<std::string>& handles) {
    for (const std::string& handle : handles) {
      hr_table* table = nullptr;
      TF_RETURN_IF_ERROR(to_status(hr_table_open(handle.c_str(), &table)));
      raw_.push_back(table);
    }
    return absl::OkStatus();
  }
  hr_table* const* data() const { return raw_.data(); }
  size_t size() const { return raw_.size(); }

 private:
  std::vector<hr_table*> raw_;
};

hr_layer_call call_of(const Tables& tables, const std::vector<size_t>& widths,
                      const std::vector<hr_feature>& features, const Threads& threads) {
  return {tables.data(),   widths.data(),   tables.size(),
          features.data(), features.size(), threads.executor()};
}

absl::Status check_learning_rates(const tf::Tensor& rates, size_t tables) {
  if (rates.dims() == 1 && static_cast<size_t>(rates.NumElements()) == tables) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("learning_rates must have shape [" + std::to_string(tables) +
                                    "]; it has " + rates.shape().DebugString());
}

absl::Status check_witness(const tf::Tensor& witness) {
  if (witness.dims() == 1 && witness.dim_size(0) == HR_SLOTS) return absl::OkStatus();
  return absl::InvalidArgumentError("the anchor must have shape [256]; it has " +
                                    witness.shape().DebugString());
}

// The anchor never changes: whoever writes to it goes past the tables.
absl::Status check_anchor(const tf::Tensor& anchor) {
  TF_RETURN_IF_ERROR(check_witness(anchor));
  for (int slot = 0; slot < HR_SLOTS; ++slot) {
    if (anchor.flat<float>()(slot) != HR_UNCHANGED) {
      return absl::FailedPreconditionError(
          "the anchor of the embedding layer was written to past Keras, so its rows are not "
          "trained; give the optimizer layer.trainable_variables themselves, not their .value");
    }
  }
  return absl::OkStatus();
}

}  // namespace

// All three are stateful: with constant keys TensorFlow would else fold a lookup into its first
// result, and reorder lookup and commit.
REGISTER_OP("HotrowLookup")
    .Input("anchor: float")
    .Input("learning_rates: float")
    .Input("keys: F * int64")
    .Input("row_splits: F * int64")
    .Input("weights: F * float")
    .Output("pooled: F * float")
    .Output("ticket: int64")
    .Attr("F: int >= 1")
    .Attr("tables: list(string)")
    .Attr("features: list(string)")
    .Attr("table_of: list(int)")
    .Attr("combiners: list(int)")
    .Attr("widths: list(int)")
    .Attr("insert: bool")
    .Attr("update_in_backward: bool = false")
    .Attr("global_clipnorm: float = 0.0")
    .SetIsStateful()
    .SetShapeFn([](tf::shape_inference::InferenceContext* c) {
      TF_RETURN_IF_ERROR(set_pooled_shapes(c));
      c->set_output(c->num_outputs() - 1, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(
        "Rows of all features of all tables, pooled. insert: unknown keys get an initialized row. "
        "learning_rates [T]: of this step, for the backward pass. ticket: names what was found, "
        "so that the backward pass need not look again.");

class LookupOp : public tf::OpKernel {
 public:
  explicit LookupOp(tf::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, Layout::read(ctx, &layout_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("insert", &insert_));
  }

  void Compute(tf::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, check_anchor(ctx->input(0)));
    std::vector<hr_feature> features;
    OP_REQUIRES_OK(ctx, read_features(ctx, layout_, &features));
    std::vector<float*> pooled(features.size());
    for (size_t f = 0; f < features.size(); ++f) {
      tf::Tensor* out = nullptr;
      OP_REQUIRES_OK(
          ctx, ctx->allocate_output(static_cast<int>(f), pooled_shape(layout_, features, f), &out));
      pooled[f] = out->flat<float>().data();
    }
    tf::Tensor* ticket = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(static_cast<int>(features.size()), {}, &ticket));
    Tables tables;
    OP_REQUIRES_OK(ctx, tables.open(layout_.tables));
    const Threads threads(ctx);
    const hr_layer_call call = call_of(tables, layout_.sizes, features, threads);
    OP_REQUIRES_OK(
        ctx, to_status(hr_forward(&call, insert_, pooled.data(), &ticket->scalar<int64_t>()())));
  }

 private:
  Layout layout_;
  bool insert_;
};
REGISTER_KERNEL_BUILDER(Name("HotrowLookup").Device(tf::DEVICE_CPU), LookupOp);

REGISTER_OP("HotrowBackward")
    .Input("learning_rates: float")
    .Input("ticket: int64")
    .Input("keys: F * int64")
    .Input("row_splits: F * int64")
    .Input("weights: F * float")
    .Input("gradients: F * float")
    .Output("witness: float")
    .Attr("F: int >= 1")
    .Attr("tables: list(string)")
    .Attr("features: list(string)")
    .Attr("table_of: list(int)")
    .Attr("combiners: list(int)")
    .Attr("widths: list(int)")
    .Attr("update_in_backward: bool")
    .Attr("global_clipnorm: float = 0.0")
    .SetIsStateful()
    .SetShapeFn([](tf::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(HR_SLOTS));
      return absl::OkStatus();
    })
    .Doc(
        "Leaves the gradients, summed per distinct key, in a slot of the tables. witness: the "
        "unit in that slot, the anchor's gradient.");

class BackwardOp : public tf::OpKernel {
 public:
  explicit BackwardOp(tf::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, Layout::read(ctx, &layout_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("update_in_backward", &commit_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("global_clipnorm", &clip_));
  }

  void Compute(tf::OpKernelContext* ctx) override {
    std::vector<hr_feature> features;
    OP_REQUIRES_OK(ctx, read_features(ctx, layout_, &features));
    tf::OpInputList gradients;
    OP_REQUIRES_OK(ctx, ctx->input_list("gradients", &gradients));
    for (size_t f = 0; f < features.size(); ++f) {
      const tf::TensorShape wanted = pooled_shape(layout_, features, f);
      OP_REQUIRES(
          ctx, gradients[static_cast<int>(f)].shape() == wanted,
          absl::InvalidArgumentError("feature " + layout_.features[f] + ": gradient of shape " +
                                     gradients[static_cast<int>(f)].shape().DebugString() +
                                     ", must be " + wanted.DebugString()));
    }
    tf::Tensor* witness = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({HR_SLOTS}), &witness));
    const tf::Tensor& rates = ctx->input(0);
    OP_REQUIRES_OK(ctx, check_learning_rates(rates, layout_.tables.size()));
    OP_REQUIRES(ctx, tf::TensorShapeUtils::IsScalar(ctx->input(1).shape()),
                absl::InvalidArgumentError("ticket must be a scalar"));
    std::vector<const float*> inputs;
    for (size_t f = 0; f < features.size(); ++f) {
      inputs.push_back(gradients[static_cast<int>(f)].flat<float>().data());
    }
    Tables tables;
    OP_REQUIRES_OK(ctx, tables.open(layout_.tables));
    const size_t slot = hr_next_slot(tables.data()[0]);
    const Threads threads(ctx);
    const hr_layer_call call = call_of(tables, layout_.sizes, features, threads);
    OP_REQUIRES_OK(ctx,
                   to_status(hr_backward(&call, inputs.data(), ctx->input(1).scalar<int64_t>()(),
                                         rates.flat<float>().data(), clip_, slot, commit_)));
    witness->flat<float>().setZero();
    witness->flat<float>()(static_cast<int64_t>(slot)) = HR_UNIT;
  }

 private:
  Layout layout_;
  bool commit_;
  float clip_;
};
REGISTER_KERNEL_BUILDER(Name("HotrowBackward").Device(tf::DEVICE_CPU), BackwardOp);

REGISTER_OP("HotrowCommit")
    .Input("witness: float")
    .Input("learning_rates: float")
    .Output("done: float")
    .Attr("tables: list(string)")
    .Attr("global_clipnorm: float = 0.0")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape)
    .Doc(
        "Ends a step or micro-step of the tables. witness: what was assigned to the anchor. "
        "learning_rates [T]: of this step.");

class CommitOp : public tf::OpKernel {
 public:
  explicit CommitOp(tf::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("tables", &handles_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("global_clipnorm", &clip_));
  }

  void Compute(tf::OpKernelContext* ctx) override {
    const tf::Tensor& witness = ctx->input(0);
    OP_REQUIRES_OK(ctx, check_witness(witness));
    const tf::Tensor& rates = ctx->input(1);
    OP_REQUIRES_OK(ctx, check_learning_rates(rates, handles_.size()));
    tf::Tensor* done = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({}), &done));
    done->scalar<float>()() = 0.0f;
    Tables tables;
    OP_REQUIRES_OK(ctx, tables.open(handles_));
    const Threads threads(ctx);
    OP_REQUIRES_OK(ctx,
                   to_status(hr_commit(tables.data(), tables.size(), witness.flat<float>().data(),
                                       rates.flat<float>().data(), clip_, threads.executor())));
  }

 private:
  std::vector<std::string> handles_;
  float clip_;
};
REGISTER_KERNEL_BUILDER(Name("HotrowCommit").Device(tf::DEVICE_CPU), CommitOp);

REGISTER_OP("HotrowTableStep")
    .Output("step: int64")
    .Attr("table: string")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape)
    .Doc("Commits of a table so far.");

class TableStepOp : public tf::OpKernel {
 public:
  explicit TableStepOp(tf::OpKernelConstruction* ctx) : OpKernel(ctx), handle_(1) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("table", &handle_[0]));
  }

  void Compute(tf::OpKernelContext* ctx) override {
    Tables tables;
    OP_REQUIRES_OK(ctx, tables.open(handle_));
    tf::Tensor* step = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({}), &step));
    step->scalar<int64_t>()() = hr_table_step(tables.data()[0]);
  }

 private:
  std::vector<std::string> handle_;
};
REGISTER_KERNEL_BUILDER(Name("HotrowTableStep").Device(tf::DEVICE_CPU), TableStepOp);

}  // namespace hotrow_tf
