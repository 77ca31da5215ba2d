// The kernels of the training ops. `Place` is where an op's work runs:
//
//   explicit Place(OpKernelContext*);  // when the op begins, before its first work
//   const hr_stream* stream() const;   // null: the tables are in RAM
//
// The op destroys it when it has enqueued all its work there.
#pragma once

#include <string>
#include <vector>

#include "core/abi/c_api.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/op_features.h"
#include "tf/training_inputs.h"

namespace hotrow_tf {

// Host memory: anchor, learning_rates, ticket.
template <typename Place>
class LookupOp : public tensorflow::OpKernel {
 public:
  explicit LookupOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, Layout::read(ctx, &layout_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("insert", &insert_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const Place place(ctx);
    OP_REQUIRES_OK(ctx, check_anchor(ctx->input(0)));
    std::vector<hr_feature> features;
    OP_REQUIRES_OK(ctx, read_features(ctx, layout_, &features));
    std::vector<float*> pooled;
    OP_REQUIRES_OK(ctx, allocate_pooled(ctx, layout_, features, &pooled));
    tensorflow::Tensor* ticket = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(static_cast<int>(features.size()), {}, &ticket));
    Tables tables;
    OP_REQUIRES_OK(ctx, tables.open(layout_.tables));
    const Threads threads(ctx);
    const hr_layer_call call = call_of(tables, layout_, features, threads);
    OP_REQUIRES_OK(ctx,
                   to_status(hr_forward(&call, insert_, pooled.data(), &ticket->scalar<int64_t>()(),
                                        nullptr, place.stream())));
  }

 private:
  Layout layout_;
  bool insert_;
};

// Host memory: learning_rates, ticket, commit_token.
template <typename Place>
class BackwardOp : public tensorflow::OpKernel {
 public:
  explicit BackwardOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, Layout::read(ctx, &layout_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("update_in_backward", &commit_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("global_clipnorm", &clip_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const Place place(ctx);
    std::vector<hr_feature> features;
    OP_REQUIRES_OK(ctx, read_features(ctx, layout_, &features));
    std::vector<const float*> gradients;
    OP_REQUIRES_OK(ctx, read_gradients(ctx, layout_, features, &gradients));
    tensorflow::Tensor* commit_token = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(0, tensorflow::TensorShape({HR_SLOTS}), &commit_token));
    const tensorflow::Tensor& rates = ctx->input(0);
    OP_REQUIRES_OK(ctx, check_learning_rates(rates, layout_.tables.size()));
    OP_REQUIRES_OK(ctx, check_ticket(ctx->input(1)));
    Tables tables;
    OP_REQUIRES_OK(ctx, tables.open(layout_.tables));
    const size_t slot = hr_next_slot(tables.data()[0]);
    const Threads threads(ctx);
    const hr_layer_call call = call_of(tables, layout_, features, threads);
    const hr_backward_options options = {commit_ ? HR_APPLY : HR_WAIT, slot,
                                         ctx->input(1).scalar<int64_t>()(),
                                         rates.flat<float>().data(), clip_};
    OP_REQUIRES_OK(ctx, to_status(hr_backward(&call, gradients.data(), &options, place.stream())));
    write_commit_token(slot, commit_token);
  }

 private:
  Layout layout_;
  bool commit_;
  float clip_;
};

// Host memory: all.
template <typename Place>
class CommitOp : public tensorflow::OpKernel {
 public:
  explicit CommitOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("tables", &handles_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("global_clipnorm", &clip_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const Place place(ctx);
    const tensorflow::Tensor& commit_token = ctx->input(0);
    OP_REQUIRES_OK(ctx, check_commit_token(commit_token));
    const tensorflow::Tensor& rates = ctx->input(1);
    OP_REQUIRES_OK(ctx, check_learning_rates(rates, handles_.size()));
    tensorflow::Tensor* done = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tensorflow::TensorShape({}), &done));
    done->scalar<float>()() = 0.0f;
    Tables tables;
    OP_REQUIRES_OK(ctx, tables.open(handles_));
    const Threads threads(ctx);
    OP_REQUIRES_OK(
        ctx, to_status(hr_commit(tables.data(), tables.size(), commit_token.flat<float>().data(),
                                 rates.flat<float>().data(), clip_, threads.executor(),
                                 place.stream())));
  }

 private:
  std::vector<std::string> handles_;
  float clip_;
};

}  // namespace hotrow_tf
