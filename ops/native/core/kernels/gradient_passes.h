// The gradients of backward passes that wait for the optimizer's commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace hotrow {

struct DevicePass;

// Gradients summed per distinct key. The rows of group g lie in [group_begins[g],
// group_begins[g + 1]) and in partitions that no other group has.
struct SummedGradients {
  std::vector<int64_t> keys;            // (U)
  std::vector<uint32_t> places;         // (U)
  std::vector<std::byte*> lines;        // (U), null: no row, its gradient is dropped
  std::vector<uint32_t> counts;         // (U) lookups
  std::vector<float> gradients;         // (U, D)
  std::vector<size_t> group_begins{0};  // (G + 1)
  uint64_t epoch = 0;                   // of the table, for lines and places
  // Of a table on a GPU, instead of all above (gpu/step/passes.h).
  std::shared_ptr<DevicePass> device;
};

// A backward pass leaves its gradients in a slot and sends kUnit in its slot of a commit_token
// along with the dense gradients. The optimizer or the training loop applies the same linear
// combination to the commit token as to all gradients. The returned token, divided by kUnit, is the
// factor of that pass. A pass whose factor is 0 was not taken and waits. It is dropped when its
// slot is needed, or after kMaxCommits: a program may compute gradients in every step and never
// apply them.
class GradientPasses {
 public:
  static constexpr size_t kSlots = 256;
  // Small, so that the commit token does not change a norm over all gradients; a power of two, so
  // that factors are exact.
  static constexpr float kUnit = 0x1p-20f;
  // The token's value when the optimizer leaves the anchor unchanged: a micro-step. Tiny, so that
  // subtracting a small learning rate times kUnit still changes it; negative, so that it differs
  // from a gradient of 0.
  static constexpr float kUnchanged = -0x1p-60f;
  // Backward passes without a commit before a lookup is refused: the optimizer does not apply
  // the anchor, and the table would never learn.
  static constexpr int64_t kMaxWaiting = 1024;
  // Commits that a pass outlives without being taken: gradients of several losses may be applied
  // one after the other. More would only keep memory, as much as a batch's gradients for each pass.
  static constexpr int64_t kMaxCommits = 16;

  explicit GradientPasses(std::string table) : table_(std::move(table)), slots_(kSlots) {}

  // The slot of the next backward pass; tables of one layer use the slot of the first table.
  size_t next_slot() { return next_slot_++ % kSlots; }
  // Called before a lookup that trains. Fails when too many passes wait.
  void begin_forward();
  // The gradients to fill for a pass in `slot`. Fails when the slot's pass belongs to the
  // micro-steps of this step.
  SummedGradients& begin_pass(size_t slot);
  // Begins a pass whose gradients are applied at once. Fails when this step had one already.
  void begin_immediate(size_t slot);

  // A pass that was taken, and the factor of its gradients.
  using Taken = std::vector<std::pair<SummedGradients*, float>>;
  // Ends a step, or a micro-step. commit_token: (kSlots), as the optimizer assigned it:
  // - all kUnchanged: a micro-step; the passes since the last commit wait for the last one;
  // - all negative: a hand-written update subtracted something where it is not kUnchanged; the
  //   factor is 1;
  // - otherwise the factors times kUnit; 0 and values that are not finite: not taken.
  // Returns the passes to apply, oldest first; empty: none. They live until the next pass begins.
  // Fails when a pass was dropped that is taken now; nothing has changed then.
  const Taken& end_step(const float* commit_token);
  // Whether end_step would return a pass.
  bool takes(const float* commit_token) const;
  // Drops a pass whose gradients could not be filled.
  void drop_pass(size_t slot) { slots_.at(slot).state = State::kNone; }
  void forget();

 private:
  enum class State { kNone, kWaiting, kDropped };
  struct Pass {
    State state = State::kNone;
    int64_t commits = 0;                    // before the pass began
    std::unique_ptr<SummedGradients> sums;  // null unless it waits
  };
  SummedGradients& make_sums(Pass* pass);
  void drop_old();

  std::string table_;  // for messages
  std::vector<Pass> slots_;
  // Memory of applied passes, for the next passes: a step's gradients are large, and 256 slots
  // would keep 256 of them.
  std::vector<std::unique_ptr<SummedGradients>> spare_;
  size_t most_spare_ = 0;  // passes of the last step
  Taken taken_;
  size_t next_slot_ = 0;
  size_t newest_ = 0;          // slot of the newest pass
  int64_t commits_ = 0;        // so far
  int64_t since_commit_ = 0;   // backward passes since the last commit
  bool accumulating_ = false;  // a micro-step ended since the last commit
  // update in backward: the slot of the pass of this step, or kSlots.
  size_t immediate_slot_ = kSlots;
};

}  // namespace hotrow
