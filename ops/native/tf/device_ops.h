// HotrowDevice for a kind of place; see tf/layer_ops.h. A place on a GPU has
//
//   int device() const;  // CUDA's number of the device
#pragma once

#include "core/abi/c_api.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/layer_ops.h"

namespace hotrow_tf {

// Registers the allocator of the op's device with the core, and returns CUDA's number of the
// device.
template <typename Place>
class DeviceOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const Place place(ctx);
    // TensorFlow's allocators live as long as the process.
    const hr_device_allocator allocator = {
        ctx->device()->GetAllocator(tensorflow::AllocatorAttributes()), &allocate, &release};
    OP_REQUIRES_OK(ctx, to_status(hr_device_set_allocator(place.device(), &allocator)));
    tensorflow::Tensor* device = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, tensorflow::TensorShape({}), &device));
    device->scalar<int32_t>()() = place.device();
  }

 private:
  static constexpr size_t kAlignment = 256;
  static void* allocate(void* context, size_t bytes) {
    return static_cast<tensorflow::Allocator*>(context)->AllocateRaw(kAlignment, bytes);
  }
  static void release(void* context, void* at) {
    static_cast<tensorflow::Allocator*>(context)->DeallocateRaw(at);
  }
};

}  // namespace hotrow_tf
