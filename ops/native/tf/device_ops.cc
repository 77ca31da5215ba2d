// The kernels of layer_ops.h and device_ops.h on TensorFlow's GPUs. This file needs no CUDA
// headers: a core that was built without CUDA refuses the calls.
#include "tf/device_ops.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/platform/stream_executor.h"
#include "tf/serving_op.h"

namespace hotrow_tf {
namespace tf = tensorflow;

REGISTER_OP("HotrowDevice")
    .Output("device: int32")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape)
    .Doc(
        "CUDA's number of the GPU that it runs on. From then on the core takes that GPU's memory "
        "from TensorFlow.");

namespace {

// TensorFlow's own stream for kernels. It frees and reuses tensors in that stream's order, so no
// thread waits.
class GpuStream {
 public:
  explicit GpuStream(tf::OpKernelContext* ctx)
      : stream_(ctx->op_device_context()->stream()),
        handle_{stream_->platform_specific_handle().stream} {}
  const hr_stream* stream() const { return &handle_; }
  int device() const { return stream_->parent()->device_ordinal(); }

 private:
  stream_executor::Stream* const stream_;
  const hr_stream handle_;
};

// The same for the serving op.
class GpuOutputs : public GpuStream {
 public:
  explicit GpuOutputs(tf::OpKernelContext* ctx) : GpuStream(ctx), ctx_(ctx) {}
  int gpu() const { return device(); }
  void copy(const std::vector<tf::Tensor>& from,
            std::function<void(const absl::Status&)> done) const {
    struct Copies {
      std::atomic<size_t> left;
      std::mutex mutex;
      absl::Status status;
      std::function<void(const absl::Status&)> done;
    };
    auto copies = std::make_shared<Copies>();
    copies->left = from.size();
    copies->done = std::move(done);
    // `done` frees this object, perhaps before the last call here returns.
    tf::OpKernelContext* const ctx = ctx_;
    const size_t count = from.size();
    for (size_t f = 0; f < count; ++f) {
      ctx->op_device_context()->CopyCPUTensorToDevice(
          &from[f], static_cast<tf::Device*>(ctx->device()),
          ctx->mutable_output(static_cast<int>(f)), [copies](const absl::Status& status) {
            {
              const std::lock_guard lock(copies->mutex);
              copies->status.Update(status);
            }
            if (--copies->left == 0) copies->done(copies->status);
          });
    }
  }

 private:
  tf::OpKernelContext* const ctx_;
};

}  // namespace

REGISTER_KERNEL_BUILDER(Name("HotrowServingLookup")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("manifest")
                            .HostMemory("keys")
                            .HostMemory("row_splits")
                            .HostMemory("weights")
                            .HostMemory("defaulted")
                            .HostMemory("stale"),
                        ServingLookupOp<GpuOutputs>);
REGISTER_KERNEL_BUILDER(Name("HotrowDevice").Device(tf::DEVICE_GPU).HostMemory("device"),
                        DeviceOp<GpuStream>);
REGISTER_KERNEL_BUILDER(Name("HotrowLookup")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("anchor")
                            .HostMemory("learning_rates")
                            .HostMemory("ticket"),
                        LookupOp<GpuStream>);
REGISTER_KERNEL_BUILDER(Name("HotrowBackward")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("learning_rates")
                            .HostMemory("ticket")
                            .HostMemory("commit_token"),
                        BackwardOp<GpuStream>);
REGISTER_KERNEL_BUILDER(Name("HotrowCommit")
                            .Device(tf::DEVICE_GPU)
                            .HostMemory("commit_token")
                            .HostMemory("learning_rates")
                            .HostMemory("done"),
                        CommitOp<GpuStream>);

}  // namespace hotrow_tf
