// The kernels of tf/device_ops.h on a stream of the emulator, for tests without a GPU. They stand
// before those of the CPU: in a process that has them, the training ops are those of a GPU.
#include "tf/device_ops.h"

#include "tests/simt/streams.h"

namespace hotrow_tf {
namespace tf = tensorflow;

namespace {

class EmulatedStream {
 public:
  explicit EmulatedStream(tf::OpKernelContext*) {}
  // Others read the outputs, and free the inputs, as soon as the op is over.
  ~EmulatedStream() { cudaStreamSynchronize(own()); }
  EmulatedStream(const EmulatedStream&) = delete;
  void* stream() const { return own(); }
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
};

}  // namespace

REGISTER_KERNEL_BUILDER(Name("HotrowDevice").Device(tf::DEVICE_CPU), DeviceOp<EmulatedStream>);
REGISTER_KERNEL_BUILDER(Name("HotrowLookup").Device(tf::DEVICE_CPU).Priority(1),
                        DeviceLookupOp<EmulatedStream>);
REGISTER_KERNEL_BUILDER(Name("HotrowBackward").Device(tf::DEVICE_CPU).Priority(1),
                        DeviceBackwardOp<EmulatedStream>);
REGISTER_KERNEL_BUILDER(Name("HotrowCommit").Device(tf::DEVICE_CPU).Priority(1),
                        DeviceCommitOp<EmulatedStream>);

}  // namespace hotrow_tf
