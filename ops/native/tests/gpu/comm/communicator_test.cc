// Collectives in device memory, for threads with one GPU, against collectives in host memory.
#include "core/gpu/comm/communicator.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/gpu/comm/staged_communicator.h"
#include "tests/gpu/device_rounds.h"
#include "tests/rank_threads.h"

namespace hotrow {
namespace {

constexpr double kLong = 60;

}  // namespace

TEST_CASE("device communicator: threads with one GPU exchange what the host's ranks would") {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    std::vector<std::string> wrong(static_cast<size_t>(ranks));
    const auto outcomes = with_communicators(ranks, kLong, [&](Communicator& host) {
      const auto own = thread_device_communicator(host, 0);
      const OwnStream stream;
      for (int round = 0; round < (kLess ? 3 : 12); ++round) {
        std::string& mine = wrong[static_cast<size_t>(host.rank())];
        if (mine.empty()) mine = wrong_on_device(*own, round, stream.get());
      }
    });
    for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
    for (const std::string& what : wrong) CHECK(what == "");
  }
}

TEST_CASE("device communicator: by way of the host's memory comes the same") {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    std::vector<std::string> wrong(static_cast<size_t>(ranks));
    const auto outcomes = with_communicators(ranks, kLong, [&](Communicator& host) {
      const auto own = staged_communicator(host, 0);
      const OwnStream stream;
      for (int round = 0; round < (kLess ? 3 : 12); ++round) {
        std::string& mine = wrong[static_cast<size_t>(host.rank())];
        if (mine.empty()) mine = wrong_on_device(*own, round, stream.get());
      }
    });
    for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
    for (const std::string& what : wrong) CHECK(what == "");
  }
}

TEST_CASE("device communicator: a rank that fails ends those that exchange with it") {
  const auto outcomes = with_communicators(3, kLong, [&](Communicator& host) {
    const auto own = thread_device_communicator(host, 0);
    const OwnStream stream;
    if (host.rank() == 1) host.fail(Code::kResourceExhausted, "no memory");
    own->begin("rows of step 12");
    DeviceArray<float> values(100);
    own->all_reduce(values.data(), 100, stream.get());
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::kResourceExhausted);
    CHECK(outcome.message == "rank 1: no memory");
  }
}

}  // namespace hotrow
