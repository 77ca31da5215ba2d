#include "core/comm/thread_communicator.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>

#include "tests/comm/communicator_rounds.h"
#include "tests/error_code.h"
#include "tests/rank_threads.h"

namespace hotrow {
namespace {

constexpr double kLong = 60;

}  // namespace

TEST_CASE("thread communicator: every collective is right on 1 to 5 ranks, many times") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    std::atomic<int> wrong{0};
    const auto outcomes = with_communicators(ranks, kLong, [&](Communicator& own) {
      for (int round = 0; round < 40; ++round) wrong += !wrong_in_round(own, round).empty();
    });
    CHECK(wrong == 0);
    for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
  }
}

TEST_CASE("thread communicator: a rank that fails ends those that wait, with its code and words") {
  const auto outcomes = with_communicators(3, kLong, [&](Communicator& own) {
    own.begin("rows of step 12");
    if (own.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      own.fail(Code::kDataLoss, "table users is damaged");
      own.fail(Code::kNotFound, "a second message");
    }
    own.barrier();
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::kDataLoss);
    CHECK(outcome.message == "rank 1: table users is damaged");
  }
}

TEST_CASE("thread communicator: after a failure everything fails at once with the same") {
  const auto outcomes = with_communicators(2, kLong, [&](Communicator& own) {
    if (own.rank() == 0) own.fail(Code::kOk, "no code is Internal");
    CHECK(error_code([&] { own.barrier(); }) == Code::kInternal);
    float value = 1;
    CHECK(error_code([&] { own.all_reduce(&value, 1); }) == Code::kInternal);
    own.begin("anything");
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.message == "rank 0: no code is Internal");
}

TEST_CASE("thread communicator: a call of another thread ends the one that waits") {
  auto all = thread_communicators(2, kLong);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    all[0]->fail(Code::kFailedPrecondition, "stop");
  });
  CHECK(outcome_of([&] { all[0]->barrier(); }).message == "rank 0: stop");
  other.join();
}

TEST_CASE("thread communicator: who waits too long names itself, the collective, and who is late") {
  const auto outcomes = with_communicators(4, 0.5, [&](Communicator& own) {
    own.begin("sizes of step 3");
    if (own.rank() % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    if (own.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const size_t sizes[4] = {0, 0, 0, 0};
    own.all_to_all(nullptr, sizes, nullptr, sizes);
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::kDeadlineExceeded);
    CHECK(outcome.message ==
          "rank 0: waited 0.5 s in all_to_all of \"sizes of step 3\" for ranks 1 and 3, which did "
          "not come: stuck, or slower than the timeout allows");
  }
}

TEST_CASE("thread communicator: a rank that has ended is not waited for") {
  const auto outcomes = with_communicators(3, kLong, [&](Communicator& own) {
    own.barrier();
    own.begin("the epoch's end");
    if (own.rank() != 2) own.barrier();
  });
  for (int r : {0, 1}) {
    CHECK(outcomes[r].code == Code::kAborted);
    CHECK(outcomes[r].message.substr(6) ==
          ": waits in barrier of \"the epoch's end\" for rank 2, which has ended");
  }
  CHECK(outcomes[2].code == Code::kOk);
}

TEST_CASE("thread communicator: ranks in different collectives get an error that names both") {
  auto outcomes = with_communicators(2, kLong, [&](Communicator& own) {
    own.begin("step 1");
    float value = 0;
    if (own.rank() == 0) {
      own.barrier();
    } else {
      own.all_reduce(&value, 1);
    }
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::kInternal);
    const bool of_first = outcome.message.substr(0, 6) == "rank 0";
    CHECK(outcome.message.substr(6) ==
          std::string(of_first ? ": is in barrier of \"step 1\" while rank 1 is in all_reduce of "
                                 "\"step 1\""
                               : ": is in all_reduce of \"step 1\" while rank 0 is in barrier of "
                                 "\"step 1\"") +
              "; all ranks must make the same calls in the same order");
  }
  outcomes = with_communicators(3, kLong, [&](Communicator& own) {
    own.begin(own.rank() == 2 ? "step 2" : "step 1");
    own.barrier();
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.code == Code::kInternal);
}

TEST_CASE("thread communicator: a rank in any other collective gets the error, whoever is first") {
  using Call = void (*)(Communicator&);
  constexpr Call kCalls[] = {[](Communicator& own) {
                               const size_t sizes[3] = {4, 4, 4};
                               std::byte from[12] = {}, to[12];
                               own.all_to_all(from, sizes, to, sizes);
                             },
                             [](Communicator& own) {
                               const size_t sizes[3] = {4, 4, 4};
                               std::byte from[4] = {}, to[12];
                               own.all_gather(from, to, sizes);
                             },
                             [](Communicator& own) {
                               const size_t counts[3] = {1, 1, 1};
                               float from[3] = {}, to[1];
                               own.reduce_scatter(from, to, counts);
                             },
                             [](Communicator& own) {
                               float values[3] = {};
                               own.all_reduce(values, 3);
                             },
                             [](Communicator& own) {
                               std::byte data[4] = {};
                               own.broadcast(data, 4, 0);
                             },
                             [](Communicator& own) { own.barrier(); }};
  for (const Call& most : kCalls) {
    for (const Call& one : kCalls) {
      if (&most == &one) continue;
      for (int other = 0; other < 3; ++other) {
        const auto outcomes = with_communicators(
            3, kLong, [&](Communicator& own) { (own.rank() == other ? one : most)(own); });
        for (const Outcome& outcome : outcomes) {
          CHECK(outcome.code == Code::kInternal);
          CHECK(outcome.message.find("make the same calls in the same order") !=
                outcome.message.npos);
        }
      }
    }
  }
}

TEST_CASE("thread communicator: ranks that do not agree about sizes get an error") {
  auto outcomes = with_communicators(2, kLong, [&](Communicator& own) {
    own.begin("rows");
    const size_t send[2] = {4, 8}, receive[2] = {4, 4};
    std::vector<std::byte> from(12), to(8);
    own.all_to_all(from.data(), send, to.data(), receive);
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::kInternal);
    CHECK(outcome.message.substr(6) ==
          ": all_to_all of \"rows\": rank 0 has size 8 for rank 1, which has 4");
  }
  outcomes = with_communicators(3, kLong, [&](Communicator& own) {
    std::vector<float> values(own.rank() == 1 ? 5 : 4);
    own.all_reduce(values.data(), values.size());
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.code == Code::kInternal);
  outcomes = with_communicators(3, kLong, [&](Communicator& own) {
    std::byte data[4] = {};
    own.broadcast(data, 4, own.rank() == 1 ? 1 : 0);
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.code == Code::kInternal);
}

TEST_CASE("thread communicator: memory is free when a call ends, whoever fails meanwhile") {
  for (int repeat = 0; repeat < 200; ++repeat) {
    with_communicators(3, kLong, [&](Communicator& own) {
      for (int round = 0; round < 5; ++round) {
        if (own.rank() == 2 && round == 3) own.fail(Code::kUnavailable, "gone");
        // Freed at once, also by the rank that gets the failure.
        std::vector<float> values(1000, 1);
        own.all_reduce(values.data(), values.size());
      }
    });
  }
}

TEST_CASE("thread communicator: no ranks and no time are refused") {
  CHECK(error_code([] { thread_communicators(0, 1); }) == Code::kInvalidArgument);
  CHECK(error_code([] { thread_communicators(2, 0); }) == Code::kInvalidArgument);
}

}  // namespace hotrow
