// HotrowLookup, HotrowBackward, HotrowCommit, HotrowTableStep: the training ops, and their kernels
// for tables in RAM. A table is a handle in an attribute, resolved in the registry of the core when
// the op runs. device_ops.cc has the kernels for tables on a GPU.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/layer_ops.h"
#include "tf/op_features.h"
#include "tf/training_inputs.h"

namespace hotrow_tf {
namespace tf = tensorflow;

namespace {

class InRam {
 public:
  explicit InRam(tf::OpKernelContext*) {}
  const hr_stream* stream() const { return nullptr; }
};

}  // namespace

// All three are stateful: else TensorFlow would constant-fold a lookup of constant keys, and
// reorder lookup and commit.
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

REGISTER_KERNEL_BUILDER(Name("HotrowLookup").Device(tf::DEVICE_CPU), LookupOp<InRam>);

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

REGISTER_KERNEL_BUILDER(Name("HotrowBackward").Device(tf::DEVICE_CPU), BackwardOp<InRam>);

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

REGISTER_KERNEL_BUILDER(Name("HotrowCommit").Device(tf::DEVICE_CPU), CommitOp<InRam>);

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
