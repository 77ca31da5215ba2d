#include "core/kernels/gradient_passes.h"

#include <cmath>

#include "core/base/room.h"
#include "core/base/status.h"

namespace hotrow {
namespace {

// A commit token.
struct Token {
  explicit Token(const float* token) : values(token) {
    for (size_t slot = 0; slot < GradientPasses::kSlots; ++slot) {
      unchanged = unchanged && values[slot] == GradientPasses::kUnchanged;
      by_hand = by_hand && values[slot] < 0.0f;
    }
  }
  bool takes(size_t slot) const {
    return by_hand ? values[slot] != GradientPasses::kUnchanged
                   : values[slot] != 0.0f && std::isfinite(values[slot]);
  }
  const float* values;
  bool unchanged = true, by_hand = true;
};

}  // namespace

void GradientPasses::begin_forward() {
  if (since_commit_ >= kMaxWaiting) {
    fail(Code::kFailedPrecondition,
         "table %s: the gradients of %lld backward passes were never applied; give all of the "
         "layer's trainable_variables to optimizer.apply_gradients, or call the layer with "
         "training=False where only other gradients are looked at",
         table_.c_str(), static_cast<long long>(since_commit_));
  }
  // An earlier step that was interrupted after its backward pass has ended.
  immediate_slot_ = kSlots;
}

SummedGradients& GradientPasses::begin_pass(size_t slot) {
  Pass& pass = slots_.at(slot);
  if (pass.state == State::kWaiting && accumulating_ && pass.commits == commits_) {
    fail(Code::kFailedPrecondition,
         "table %s: more than %zu backward passes in the micro-steps of one step; apply gradients "
         "after fewer micro-steps, and compute fewer that are not applied",
         table_.c_str(), kSlots);
  }
  SummedGradients& sums = make_sums(&pass);
  pass.state = State::kWaiting;
  pass.commits = commits_;
  newest_ = slot;
  ++since_commit_;
  return sums;
}

SummedGradients& GradientPasses::make_sums(Pass* pass) {
  if (spare_.size() > most_spare_) spare_.resize(most_spare_);
  if (pass->sums == nullptr && !spare_.empty()) {
    pass->sums = std::move(spare_.back());
    spare_.pop_back();
  }
  if (pass->sums == nullptr) pass->sums = std::make_unique<SummedGradients>();
  return *pass->sums;
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
  // Nothing fails once a pass is taken.
  taken_.reserve(kSlots);
  make_room(spare_, kSlots);
  const Token token(commit_token);
  if (immediate_slot_ != kSlots) {
    const size_t slot = std::exchange(immediate_slot_, kSlots);
    since_commit_ = 0;
    const bool as_it_was =
        token.by_hand ? commit_token[slot] != kUnchanged : commit_token[slot] == kUnit;
    if (token.unchanged || !as_it_was) {
      fail(Code::kFailedPrecondition,
           "table %s: gradients were accumulated, scaled or clipped after the rows were updated; "
           "the layer has update='backward': set update='step'",
           table_.c_str());
    }
    return taken_;
  }
  if (token.unchanged) {
    accumulating_ = true;
    return taken_;
  }
  for (size_t slot = 0; slot < kSlots; ++slot) {
    if (slots_[slot].state != State::kDropped || !token.takes(slot)) continue;
    fail(Code::kFailedPrecondition,
         "table %s: gradients are applied more than %lld steps after they were computed, and were "
         "dropped; compute them again",
         table_.c_str(), static_cast<long long>(kMaxCommits));
  }
  for (size_t i = 1; i <= kSlots; ++i) {
    const size_t slot = (newest_ + i) % kSlots;  // the oldest pass first
    Pass& pass = slots_[slot];
    if (pass.state != State::kWaiting || !token.takes(slot)) continue;
    pass.state = State::kNone;
    taken_.emplace_back(pass.sums.get(), token.by_hand ? 1.0f : commit_token[slot] / kUnit);
    spare_.push_back(std::move(pass.sums));
  }
  most_spare_ = static_cast<size_t>(since_commit_);
  ++commits_;
  since_commit_ = 0;
  accumulating_ = false;
  drop_old();
  return taken_;
}

bool GradientPasses::takes(const float* commit_token) const {
  const Token token(commit_token);
  if (immediate_slot_ != kSlots || token.unchanged) return false;
  for (size_t slot = 0; slot < kSlots; ++slot) {
    if (slots_[slot].state == State::kWaiting && token.takes(slot)) return true;
  }
  return false;
}

void GradientPasses::drop_old() {
  for (Pass& pass : slots_) {
    if (pass.state != State::kWaiting || commits_ - pass.commits <= kMaxCommits) continue;
    pass.state = State::kDropped;
    spare_.push_back(std::move(pass.sums));
  }
}

void GradientPasses::forget() {
  for (Pass& pass : slots_) pass = Pass();
  spare_.clear();
  since_commit_ = 0;
  accumulating_ = false;
  immediate_slot_ = kSlots;
}

}  // namespace hotrow
