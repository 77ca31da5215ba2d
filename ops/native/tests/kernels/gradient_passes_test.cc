// Which backward passes a step takes, and how long others keep their memory:
// kernels/gradient_passes.h.
#include "core/kernels/gradient_passes.h"

#include <doctest/doctest.h>

#include <array>
#include <set>

#include "tests/error_code.h"

namespace hotrow {
namespace {

constexpr size_t kSlots = GradientPasses::kSlots;
constexpr float kUnit = GradientPasses::kUnit;
using CommitToken = std::array<float, kSlots>;

CommitToken token_of(float everywhere) {
  CommitToken token;
  token.fill(everywhere);
  return token;
}
CommitToken token_of(std::initializer_list<size_t> slots, float factor = 1.0f) {
  CommitToken token = token_of(0.0f);
  for (size_t slot : slots) token[slot] = factor * kUnit;
  return token;
}
const CommitToken kMicroStep = token_of(GradientPasses::kUnchanged);

// A backward pass that waits; returns its slot.
size_t wait(GradientPasses& passes) {
  passes.begin_forward();
  const size_t slot = passes.next_slot();
  passes.begin_pass(slot);
  return slot;
}

TEST_CASE("micro-steps scale nothing: the optimizer's commit token has the mean") {
  GradientPasses passes("t");
  const size_t first = wait(passes);
  for (int i = 0; i < 3; ++i) CHECK(passes.end_step(kMicroStep.data()).empty());
  const size_t second = wait(passes);
  const auto& taken = passes.end_step(token_of({first, second}, 0.5f).data());
  REQUIRE(taken.size() == 2);
  CHECK(taken[0].second == 0.5f);
  CHECK(taken[1].second == 0.5f);
}

TEST_CASE("gradients that are never applied keep the memory of a few passes") {
  GradientPasses passes("t");
  std::set<const SummedGradients*> used;
  for (int step = 0; step < 1000; ++step) {
    used.insert(&passes.begin_pass(passes.next_slot()));  // only looked at
    const size_t slot = passes.next_slot();
    used.insert(&passes.begin_pass(slot));
    REQUIRE(passes.end_step(token_of({slot}).data()).size() == 1);
  }
  CHECK(used.size() <= GradientPasses::kMaxCommits + 4);
}

TEST_CASE("gradients that are never applied do not end gradient accumulation") {
  GradientPasses passes("t");
  for (int step = 0; step < 1000; ++step) {
    for (int i = 0; i < 100; ++i) wait(passes);  // only looked at
    const size_t first = wait(passes);
    passes.end_step(kMicroStep.data());
    const size_t second = wait(passes);
    REQUIRE(passes.end_step(token_of({first, second}).data()).size() == 2);
  }
}

TEST_CASE("more passes than slots in the micro-steps of a step are refused") {
  GradientPasses passes("t");
  for (size_t i = 0; i < kSlots; ++i) {
    wait(passes);
    passes.end_step(kMicroStep.data());
  }
  CHECK(error_code([&] { wait(passes); }) == Code::kFailedPrecondition);
}

TEST_CASE("a pass may be taken after other steps, but not after it was dropped") {
  GradientPasses passes("t");
  const size_t early = wait(passes), late = wait(passes);
  const auto other_step = [&] { passes.end_step(token_of({wait(passes)}).data()); };
  for (int64_t i = 0; i < GradientPasses::kMaxCommits; ++i) other_step();
  CHECK(passes.end_step(token_of({early}).data()).size() == 1);
  other_step();
  const CommitToken token = token_of({late});
  CHECK(error_code([&] { passes.end_step(token.data()); }) == Code::kFailedPrecondition);
  other_step();
}

}  // namespace
}  // namespace hotrow
