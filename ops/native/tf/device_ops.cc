// The kernels of layer_ops.h and device_ops.h on TensorFlow's GPUs. This file needs no CUDA
// headers: a core that was built without CUDA refuses the calls.
#include "tf/device_ops.h"

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/platform/stream_executor.h"

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

}  // namespace

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
