// NCCL on a real GPU; the emulator has no NCCL.
#if !defined(HOTROW_SIMT)
#include "core/gpu/comm/nccl_communicator.h"

#include <doctest/doctest.h>

#include "tests/error_code.h"
#include "tests/gpu/device_rounds.h"
#include "tests/rank_threads.h"

namespace hotrow {
namespace {

constexpr double kLong = 60;

// False, and a message, where there is no NCCL.
bool has_nccl() {
  const Outcome outcome = outcome_of([] {
    const auto host = std::move(thread_communicators(1, kLong)[0]);
    nccl_communicator(*host, 0, HOTROW_NCCL_LIBRARY, kLong);
  });
  if (outcome.code != Code::kFailedPrecondition && outcome.code != Code::kUnimplemented) {
    CHECK(outcome.message == "");
    return true;
  }
  MESSAGE(outcome.message);
  return false;
}

}  // namespace

TEST_CASE("nccl: a rank alone exchanges with itself what the host's would") {
  if (!has_nccl()) return;
  const auto host = std::move(thread_communicators(1, kLong)[0]);
  const auto own = nccl_communicator(*host, 0, HOTROW_NCCL_LIBRARY, kLong);
  const OwnStream stream;
  for (int round = 0; round < 20; ++round) CHECK(wrong_on_device(*own, round, stream.get()) == "");
}

TEST_CASE("nccl: several ranks on one GPU are refused by it, on all of them") {
  if (!has_nccl()) return;
  const auto outcomes = with_communicators(
      2, kLong, [](Communicator& host) { nccl_communicator(host, 0, HOTROW_NCCL_LIBRARY, kLong); });
  for (const Outcome& outcome : outcomes) CHECK(outcome.code != Code::kOk);
}

TEST_CASE("nccl: a failure of another rank ends who waits for it") {
  if (!has_nccl()) return;
  const auto outcomes = with_communicators(2, kLong, [](Communicator& host) {
    if (host.rank() == 1) {
      std::byte id[128];
      host.broadcast(id, sizeof(id), 0);
      host.fail(Code::kDataLoss, "the data is gone");
      return;
    }
    nccl_communicator(host, 0, HOTROW_NCCL_LIBRARY, kLong);
  });
  CHECK(outcomes[0].code == Code::kDataLoss);
  CHECK(outcomes[0].message == "rank 1: the data is gone");
}

}  // namespace hotrow
#endif
