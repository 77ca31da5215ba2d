// Replaces gpu/serving/gpu_rows.cu in a core that was built without CUDA: all calls fail.
#include "core/base/status.h"
#include "core/serving/device_rows.h"

namespace hotrow {

void check_serving_gpu(int gpu) {
  fail(Code::kFailedPrecondition,
       "a cache of rows on GPU %d: this core was built without CUDA; configure it with "
       "-DHOTROW_CUDA=ON",
       gpu);
}

std::unique_ptr<DeviceRows> make_device_rows(std::shared_ptr<HotRows>,
                                             const DeviceRowsOptions& options) {
  check_serving_gpu(options.gpu);
  return nullptr;
}

}  // namespace hotrow
