// HotrowLookup, HotrowBackward, HotrowCommit, HotrowTableStep: the training ops, and their kernels
// for tables in RAM. A table is a handle in an attribute, resolved in the registry of the core when
// the op runs. The sibling for tables on a GPU: device_ops.h.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/op_features.h"
#include "tf/training_inputs.h"

namespace hotrow_tf {
namespace tf = tensorflow;

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
    .Attr("collective: bool = false")
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
    std::vector<float*> pooled;
    OP_REQUIRES_OK(ctx, allocate_pooled(ctx, layout_, features, &pooled));
    tf::Tensor* ticket = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(static_cast<int>(features.size()), {}, &ticket));
    Tables tables;
    OP_REQUIRES_OK(ctx, tables.open(layout_.tables));
    const Threads threads(ctx);
    const hr_layer_call call = call_of(tables, layout_, features, threads);
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
    .Output("commit_token: float")
    .Attr("F: int >= 1")
    .Attr("tables: list(string)")
    .Attr("features: list(string)")
    .Attr("table_of: list(int)")
    .Attr("combiners: list(int)")
    .Attr("widths: list(int)")
    .Attr("update_in_backward: bool")
    .Attr("global_clipnorm: float = 0.0")
    .Attr("collective: bool = false")
    .SetIsStateful()
    .SetShapeFn([](tf::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(HR_SLOTS));
      return absl::OkStatus();
    })
    .Doc(
        "Leaves the gradients, summed per distinct key, in a slot of the tables. commit_token: the "
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
    std::vector<const float*> gradients;
    OP_REQUIRES_OK(ctx, read_gradients(ctx, layout_, features, &gradients));
    tf::Tensor* commit_token = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({HR_SLOTS}), &commit_token));
    const tf::Tensor& rates = ctx->input(0);
    OP_REQUIRES_OK(ctx, check_learning_rates(rates, layout_.tables.size()));
    OP_REQUIRES_OK(ctx, check_ticket(ctx->input(1)));
    Tables tables;
    OP_REQUIRES_OK(ctx, tables.open(layout_.tables));
    const size_t slot = hr_next_slot(tables.data()[0]);
    const Threads threads(ctx);
    const hr_layer_call call = call_of(tables, layout_, features, threads);
    OP_REQUIRES_OK(ctx,
                   to_status(hr_backward(&call, gradients.data(), ctx->input(1).scalar<int64_t>()(),
                                         rates.flat<float>().data(), clip_, slot, commit_)));
    write_commit_token(slot, commit_token);
  }

 private:
  Layout layout_;
  bool commit_;
  float clip_;
};
REGISTER_KERNEL_BUILDER(Name("HotrowBackward").Device(tf::DEVICE_CPU), BackwardOp);

REGISTER_OP("HotrowCommit")
    .Input("commit_token: float")
    .Input("learning_rates: float")
    .Output("done: float")
    .Attr("tables: list(string)")
    .Attr("global_clipnorm: float = 0.0")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape)
    .Doc(
        "Ends a step or micro-step of the tables. commit_token: what was assigned to the anchor. "
        "learning_rates [T]: of this step.");

class CommitOp : public tf::OpKernel {
 public:
  explicit CommitOp(tf::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("tables", &handles_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("global_clipnorm", &clip_));
  }

  void Compute(tf::OpKernelContext* ctx) override {
    const tf::Tensor& commit_token = ctx->input(0);
    OP_REQUIRES_OK(ctx, check_commit_token(commit_token));
    const tf::Tensor& rates = ctx->input(1);
    OP_REQUIRES_OK(ctx, check_learning_rates(rates, handles_.size()));
    tf::Tensor* done = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({}), &done));
    done->scalar<float>()() = 0.0f;
    Tables tables;
    OP_REQUIRES_OK(ctx, tables.open(handles_));
    const Threads threads(ctx);
    OP_REQUIRES_OK(
        ctx, to_status(hr_commit(tables.data(), tables.size(), commit_token.flat<float>().data(),
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
