// Replaces gpu/step/layer.cu and gpu/step/tier.cu in a core that was built without CUDA: all calls
// fail.
#include "core/gpu/step/layer.h"
#include "core/table/device_tier.h"
#include "core/table/table.h"

namespace hotrow {
namespace {

[[noreturn]] void refuse(const Table& table) {
  fail(Code::kFailedPrecondition,
       "table %s: this core was built without CUDA; configure it with -DHOTROW_CUDA=ON",
       table.name().c_str());
}

}  // namespace

std::unique_ptr<DeviceTier> make_gpu_tier(Table& table) { refuse(table); }

int64_t device_forward(const LayerCall& call, bool, const std::vector<float*>&, size_t*,
                       DeviceStream) {
  refuse(*call.tables.at(0));
}

void device_backward(const LayerCall& call, const std::vector<const float*>&,
                     const BackwardOptions&, DeviceStream) {
  refuse(*call.tables.at(0));
}

void device_commit(const std::vector<Table*>& tables, const float*, const float*, float,
                   const Executor&, DeviceStream) {
  refuse(*tables.at(0));
}

}  // namespace hotrow
