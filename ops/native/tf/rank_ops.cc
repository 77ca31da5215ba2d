// HotrowAllReduceStart, HotrowAllReduceWait: pending all-reduces of dense gradients over ranks,
// while the backward pass continues. The code that creates the ops must order the starts by control
// edges: the queue of collectives runs them in order of arrival, which must be the same on all
// ranks.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/abi/ranks.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/lib/core/threadpool.h"
#include "tf/op_features.h"

namespace hotrow_tf {
namespace tf = tensorflow;

REGISTER_OP("HotrowAllReduceStart")
    .Input("values: N * float")
    .Output("ticket: int64")
    .Attr("N: int >= 1")
    .Attr("ranks: string")
    .Attr("what: string")
    .SetIsStateful()
    .SetShapeFn([](tf::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return absl::OkStatus();
    })
    .Doc(
        "Starts to sum the values over ranks, and does not wait. ticket: for HotrowAllReduceWait.");

class AllReduceStartOp : public tf::OpKernel {
 public:
  explicit AllReduceStartOp(tf::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ranks", &ranks_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("what", &what_));
  }

  void Compute(tf::OpKernelContext* ctx) override {
    std::vector<const float*> values;
    std::vector<size_t> counts;
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      values.push_back(ctx->input(i).flat<float>().data());
      counts.push_back(static_cast<size_t>(ctx->input(i).NumElements()));
    }
    tf::Tensor* ticket = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &ticket));
    hr_ranks* raw = nullptr;
    OP_REQUIRES_OK(ctx, to_status(hr_ranks_open(ranks_.c_str(), &raw)));
    const std::unique_ptr<hr_ranks, void (*)(hr_ranks*)> ranks(raw, hr_ranks_release);
    OP_REQUIRES_OK(ctx,
                   to_status(hr_ranks_sum_start(raw, what_.c_str(), values.data(), counts.data(),
                                                values.size(), &ticket->scalar<int64_t>()())));
  }

 private:
  std::string ranks_, what_;
};
REGISTER_KERNEL_BUILDER(Name("HotrowAllReduceStart").Device(tf::DEVICE_CPU), AllReduceStartOp);

REGISTER_OP("HotrowAllReduceWait")
    .Input("ticket: int64")
    .Input("values: N * float")
    .Output("sums: N * float")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](tf::shape_inference::InferenceContext* c) {
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i + 1));
      return absl::OkStatus();
    })
    .Doc("Waits for the sums. values: those that were given to the start, for their shapes.");

// Asynchronous: the start ops of other sums need the thread.
class AllReduceWaitOp : public tf::AsyncOpKernel {
 public:
  explicit AllReduceWaitOp(tf::OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {}

  void ComputeAsync(tf::OpKernelContext* ctx, DoneCallback done) override {
    OP_REQUIRES_ASYNC(ctx, tf::TensorShapeUtils::IsScalar(ctx->input(0).shape()),
                      absl::InvalidArgumentError("ticket must be a scalar"), done);
    size_t count = 0;
    for (int i = 1; i < ctx->num_inputs(); ++i) {
      count += static_cast<size_t>(ctx->input(i).NumElements());
    }
    auto waiting = std::make_unique<Waiting>(Waiting{ctx, done});
    const int code =
        hr_ranks_sum_finish(ctx->input(0).scalar<int64_t>()(), count, waiting.get(), &finish);
    if (code == 0) {
      waiting.release();  // `finish` owns it, or owned it
      return;
    }
    OP_REQUIRES_OK_ASYNC(ctx, to_status(code), done);
  }

 private:
  struct Waiting {
    tf::OpKernelContext* ctx;
    DoneCallback done;
  };

  // Runs on the thread of collectives, which must continue at once: slow work, and the executor's
  // work after the op, run on another thread.
  static void finish(void* context, int code, const char* message, hr_sums* sums) {
    const auto* waiting = static_cast<Waiting*>(context);
    tf::OpKernelContext* ctx = waiting->ctx;
    ctx->device()->tensorflow_cpu_worker_threads()->workers->Schedule(
        [waiting = std::unique_ptr<const Waiting>(waiting).release(), code,
         text = std::string(message), sums] {
          const std::unique_ptr<const Waiting> owned(waiting);
          if (code != 0) {
            owned->ctx->SetStatus(to_status(code, text));
          } else {
            owned->ctx->SetStatus(copy_sums(owned->ctx, hr_sums_values(sums)));
            hr_sums_release(sums);
          }
          owned->done();
        });
  }

  static absl::Status copy_sums(tf::OpKernelContext* ctx, const float* sums) {
    for (int i = 0; i < ctx->num_outputs(); ++i) {
      tf::Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(
          ctx->forward_input_or_allocate_output({i + 1}, i, ctx->input(i + 1).shape(), &output));
      const auto count = static_cast<size_t>(output->NumElements());
      std::copy_n(sums, count, output->flat<float>().data());
      sums += count;
    }
    return absl::OkStatus();
  }
};
REGISTER_KERNEL_BUILDER(Name("HotrowAllReduceWait").Device(tf::DEVICE_CPU), AllReduceWaitOp);

}  // namespace hotrow_tf
