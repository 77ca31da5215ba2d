#include "core/kernels/optimizer.h"

namespace hotrow {

size_t Optimizer::state_vectors() const {
  switch (kind) {
    case OptimizerKind::kMomentum:
    case OptimizerKind::kAdagrad:
      return 1;
    case OptimizerKind::kAdam:
    case OptimizerKind::kFtrl:
      return 2;
    case OptimizerKind::kSgd:
    case OptimizerKind::kRowwiseAdagrad:
      break;
  }
  return 0;
}

size_t Optimizer::state_scalars() const {
  return kind == OptimizerKind::kRowwiseAdagrad || (kind == OptimizerKind::kAdam && row_steps);
}

}  // namespace hotrow
