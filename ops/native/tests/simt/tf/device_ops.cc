// The kernels of tf/layer_ops.h on a stream of the emulator, for tests without a GPU. They take
// priority over the CPU's kernels: in a process that loads them, the training ops are those of a
// GPU.
#include "tf/device_ops.h"

#include <cstring>
#include <functional>
#include <vector>

#include "tests/simt/streams.h"
#include "tf/serving_op.h"

namespace hotrow_tf {
namespace tf = tensorflow;

namespace {

class EmulatedStream {
 public:
  explicit EmulatedStream(tf::OpKernelContext*) : handle_{own()} {}
  // Other ops read the outputs, and TensorFlow frees the inputs, as soon as the op ends.
  ~EmulatedStream() { cudaStreamSynchronize(own()); }
  EmulatedStream(const EmulatedStream&) = delete;
  const hr_stream* stream() const { return &handle_; }
  int device() const { return 0; }

 private:
  static cudaStream_t own() {
    static const cudaStream_t stream = [] {
      cudaStream_t made = nullptr;
      cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
      return made;
    }();
    return stream;
  }

  const hr_stream handle_;
};

class EmulatedOutputs : public EmulatedStream {
 public:
  explicit EmulatedOutputs(tf::OpKernelContext* ctx) : EmulatedStream(ctx), ctx_(ctx) {}
  int gpu() const { return device(); }
  void copy(const std::vector<tf::Tensor>& from,
            std::function<void(const absl::Status&)> done) const {
    for (size_t f = 0; f < from.size(); ++f) {
      if (from[f].NumElements() == 0) continue;
      std::memcpy(ctx_->mutable_output(static_cast<int>(f))->data(), from[f].data(),
                  from[f].TotalBytes());
    }
    done(absl::OkStatus());
  }

 private:
  tf::OpKernelContext* const ctx_;
};

}  // namespace

REGISTER_KERNEL_BUILDER(Name("HotrowServingLookup").Device(tf::DEVICE_CPU).Priority(1),
                        ServingLookupOp<EmulatedOutputs>);
REGISTER_KERNEL_BUILDER(Name("HotrowDevice").Device(tf::DEVICE_CPU), DeviceOp<EmulatedStream>);
REGISTER_KERNEL_BUILDER(Name("HotrowLookup").Device(tf::DEVICE_CPU).Priority(1),
                        LookupOp<EmulatedStream>);
REGISTER_KERNEL_BUILDER(Name("HotrowBackward").Device(tf::DEVICE_CPU).Priority(1),
                        BackwardOp<EmulatedStream>);
REGISTER_KERNEL_BUILDER(Name("HotrowCommit").Device(tf::DEVICE_CPU).Priority(1),
                        CommitOp<EmulatedStream>);

}  // namespace hotrow_tf
