#include "core/kernels/gradient_passes.h"

#include <cmath>

#include "core/base/status.h"

namespace hotrow {

void GradientPasses::begin_forward() {
  if (since_commit_ >= kMaxWaiting) {
    fail(Code::kFailedPrecondition,
         "table %s: the gradients of %lld backward passes were never applied; give all of the "
         "layer's trainable_variables to optimizer.apply_gradients",
         table_.c_str(), static_cast<long long>(since_commit_));
  }
  // An earlier step that was interrupted after its backward pass has ended.
  immediate_slot_ = kSlots;
}

SummedGradients& GradientPasses::begin_pass(size_t slot) {
  Pass& pass = slots_.at(slot);
  if (pass.waiting && micro_steps_ > 0) {
    fail(Code::kFailedPrecondition, "table %s: more than %zu backward passes in one step",
         table_.c_str(), kSlots);
  }
  pass.waiting = true;
  newest_ = slot;
  ++since_commit_;
  if (pass.sums == nullptr && !spare_.empty()) {
    pass.sums = std::move(spare_.back());
    spare_.pop_back();
  }
  if (pass.sums == nullptr) pass.sums = std::make_unique<SummedGradients>();
  return *pass.sums;
}

void GradientPasses::begin_immediate(size_t slot) {
  if (immediate_slot_ != kSlots) {
    fail(Code::kFailedPrecondition,
         "table %s: a second backward pass in one step; the layer has update='backward', which "
         "takes one use a step and no gradient accumulation: set update='step'",
         table_.c_str());
  }
  immediate_slot_ = slot;
  ++since_commit_;
}

const GradientPasses::Taken& GradientPasses::end_step(const float* commit_token) {
  taken_.clear();
  bool unchanged = true, by_hand = true;
  for (size_t slot = 0; slot < kSlots; ++slot) {
    unchanged = unchanged && commit_token[slot] == kUnchanged;
    by_hand = by_hand && commit_token[slot] < 0.0f;
  }
  if (immediate_slot_ != kSlots) {
    const size_t slot = std::exchange(immediate_slot_, kSlots);
    since_commit_ = 0;
    const bool as_it_was = by_hand ? commit_token[slot] != kUnchanged : commit_token[slot] == kUnit;
    if (unchanged || !as_it_was) {
      fail(Code::kFailedPrecondition,
           "table %s: gradients were accumulated, scaled or clipped after the rows were updated; "
           "the layer has update='backward': set update='step'",
           table_.c_str());
    }
    return taken_;
  }
  if (unchanged) {
    ++micro_steps_;
    return taken_;
  }
  const float steps = static_cast<float>(micro_steps_ + 1);
  micro_steps_ = 0;
  since_commit_ = 0;
  for (size_t i = 1; i <= kSlots; ++i) {
    const size_t slot = (newest_ + i) % kSlots;  // the oldest pass first
    Pass& pass = slots_[slot];
    if (!pass.waiting) continue;
    const bool taken = by_hand ? commit_token[slot] != kUnchanged
                               : commit_token[slot] != 0.0f && std::isfinite(commit_token[slot]);
    if (!taken) continue;
    pass.waiting = false;
    taken_.emplace_back(pass.sums.get(), by_hand ? 1.0f : commit_token[slot] / kUnit / steps);
    spare_.push_back(std::move(pass.sums));
  }
  return taken_;
}

void GradientPasses::forget() {
  for (Pass& pass : slots_) pass = Pass();
  spare_.clear();
  since_commit_ = micro_steps_ = 0;
  immediate_slot_ = kSlots;
}

}  // namespace hotrow
