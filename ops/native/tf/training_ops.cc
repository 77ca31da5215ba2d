// HotrowLookup, HotrowBackward, HotrowCommit: the training ops. A table is a handle in an
// attribute, resolved in the registry of the core when the op runs.
#include <memory>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf/op_features.h"

namespace hotrow_tf {
namespace tf = tensorflow;

namespace {

struct ReleaseTable {
  void operator()(hr_table* table) const { hr_table_release(table); }
};
using TableRef = std::unique_ptr<hr_table, ReleaseTable>;

int open_table(const std::string& handle, TableRef* table) {
  hr_table* raw = nullptr;
  const int code = hr_table_open(handle.c_str(), &raw);
  table->reset(raw);
  return code;
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
    .Input("keys: F * int64")
    .Input("row_splits: F * int64")
    .Input("weights: F * float")
    .Output("pooled: F * float")
    .Attr("F: int >= 1")
    .Attr("tables: list(string)")
    .Attr("features: list(string)")
    .Attr("table_of: list(int)")
    .Attr("combiners: list(int)")
    .Attr("widths: list(int)")
    .Attr("insert: bool")
    .Attr("update_in_backward: bool = false")
    .SetIsStateful()
    .SetShapeFn(set_pooled_shapes)
    .Doc(
        "Rows of all features of all tables, pooled. insert: unknown keys get an initialized row.");

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
    OP_REQUIRES_OK(ctx, for_each_table(ctx, layout_, features, [&](const TablePart& part) {
                     TableRef table;
                     const int code = open_table(layout_.tables[part.table], &table);
                     if (code != 0) return code;
                     std::vector<float*> outputs;
                     for (size_t f : part.places) outputs.push_back(pooled[f]);
                     return hr_lookup(table.get(), static_cast<size_t>(layout_.widths[part.table]),
                                      part.features.data(), part.features.size(), insert_,
                                      outputs.data());
                   }));
  }

 private:
  Layout layout_;
  bool insert_;
};
REGISTER_KERNEL_BUILDER(Name("HotrowLookup").Device(tf::DEVICE_CPU), LookupOp);

REGISTER_OP("HotrowBackward")
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
    TableRef first;
    OP_REQUIRES_OK(ctx, to_status(open_table(layout_.tables[0], &first)));
    const size_t slot = hr_next_slot(first.get());
    OP_REQUIRES_OK(ctx, for_each_table(ctx, layout_, features, [&](const TablePart& part) {
                     TableRef table;
                     const int code = open_table(layout_.tables[part.table], &table);
                     if (code != 0) return code;
                     std::vector<const float*> inputs;
                     for (size_t f : part.places) {
                       inputs.push_back(gradients[static_cast<int>(f)].flat<float>().data());
                     }
                     return hr_backward(
                         table.get(), static_cast<size_t>(layout_.widths[part.table]), slot,
                         part.features.data(), part.features.size(), inputs.data(), commit_);
                   }));
    witness->flat<float>().setZero();
    witness->flat<float>()(static_cast<int64_t>(slot)) = HR_UNIT;
  }

 private:
  Layout layout_;
  bool commit_;
};
REGISTER_KERNEL_BUILDER(Name("HotrowBackward").Device(tf::DEVICE_CPU), BackwardOp);

REGISTER_OP("HotrowCommit")
    .Input("witness: float")
    .Output("done: float")
    .Attr("tables: list(string)")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape)
    .Doc("Ends a step or micro-step of the tables. witness: what was assigned to the anchor.");

class CommitOp : public tf::OpKernel {
 public:
  explicit CommitOp(tf::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("tables", &tables_));
  }

  void Compute(tf::OpKernelContext* ctx) override {
    const tf::Tensor& witness = ctx->input(0);
    OP_REQUIRES_OK(ctx, check_witness(witness));
    tf::Tensor* done = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tf::TensorShape({}), &done));
    done->scalar<float>()() = 0.0f;
    for (const std::string& handle : tables_) {
      TableRef table;
      OP_REQUIRES_OK(ctx, to_status(open_table(handle, &table)));
      OP_REQUIRES_OK(ctx, to_status(hr_commit(table.get(), witness.flat<float>().data())));
    }
  }

 private:
  std::vector<std::string> tables_;
};
REGISTER_KERNEL_BUILDER(Name("HotrowCommit").Device(tf::DEVICE_CPU), CommitOp);

}  // namespace hotrow_tf
