#include "core/comm/pending_all_reduce.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <future>
#include <random>

#include "tests/comm/communicator_rounds.h"
#include "tests/error_code.h"
#include "tests/rank_threads.h"

namespace hotrow {
namespace {

std::vector<std::shared_ptr<Collectives>> group(int ranks) {
  std::vector<std::shared_ptr<Collectives>> all;
  for (auto& communicator : thread_communicators(ranks, 60)) {
    all.push_back(std::make_shared<Collectives>(std::move(communicator)));
  }
  return all;
}

// Waits for a sum; throws its failure. The queue's thread keeps the exception itself: TSan does not
// see libstdc++'s reference counts.
std::vector<float> sum_of(int64_t ticket, size_t count) {
  struct End {
    Outcome outcome;
    std::vector<float> sums;
  };
  const auto ended = std::make_shared<std::promise<End>>();
  finish_sum(ticket, count,
             [ended, count](std::exception_ptr error, std::shared_ptr<const float> values) {
               End end;
               end.outcome = outcome_of([&] {
                 if (error != nullptr) std::rethrow_exception(error);
               });
               if (error == nullptr) end.sums.assign(values.get(), values.get() + count);
               ended->set_value(std::move(end));
             });
  const End end = ended->get_future().get();
  if (end.outcome.code != Code::kOk) throw Error(end.outcome.code, end.outcome.message);
  return end.sums;
}

}  // namespace

TEST_CASE(
    "pending all-reduce: several at a time, waited for in any order, are right on all ranks") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const auto all = group(ranks);
    std::vector<int> wrong(static_cast<size_t>(ranks), 0);
    const auto outcomes = on_ranks(ranks, [&](int r) {
      std::mt19937 random(static_cast<uint32_t>(r));
      for (int round = 0; round < 10; ++round) {
        std::vector<std::pair<int, int64_t>> tickets;
        for (int i = 0; i < 8; ++i) {
          const int seed = 8 * round + i;
          const size_t count = size_said(seed, 1, 2);
          std::vector<float> values = values_of<float>(seed, r, count);
          const size_t half = count / 2;
          const int64_t ticket = start_sum(
              all[static_cast<size_t>(r)], "bucket " + std::to_string(seed),
              {{values.data(), half}, {nullptr, 0}, {values.data() + half, count - half}});
          std::fill(values.begin(), values.end(), 0.0f);  // copied already
          tickets.emplace_back(seed, ticket);
        }
        std::shuffle(tickets.begin(), tickets.end(), random);
        for (const auto& [seed, ticket] : tickets) {
          const size_t count = size_said(seed, 1, 2);
          const bool right =
              same_bits(sum_of(ticket, count), sum_of_ranks<float>(seed, ranks, count));
          wrong[static_cast<size_t>(r)] += !right;
        }
      }
    });
    for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
    CHECK(wrong == std::vector<int>(static_cast<size_t>(ranks), 0));
    const StageCount dense = all[0]->counts()[0];
    CHECK(dense.stage == "dense");
    CHECK(dense.calls == 80);
  }
}

TEST_CASE("pending all-reduce: bytes that travel are counted") {
  const auto all = group(2);
  on_ranks(2, [&](int r) {
    const std::vector<float> values(1000, 1.0f);
    sum_of(start_sum(all[static_cast<size_t>(r)], "sum", {{values.data(), 1000}}), 1000);
  });
  CHECK(all[1]->counts()[0].bytes_sent == 4000);
  CHECK(all[1]->counts()[0].bytes_received == 4000);
}

TEST_CASE("pending all-reduce: who waits gets the error of a rank that fails") {
  const auto all = group(2);
  const float value = 1;
  const int64_t ticket = start_sum(all[0], "bucket 0", {{&value, 1}});
  all[1]->fail(Code::kDataLoss, "the data is gone");
  const Outcome outcome = outcome_of([&] { sum_of(ticket, 1); });
  CHECK(outcome.code == Code::kDataLoss);
  CHECK(outcome.message == "rank 1: the data is gone");
}

TEST_CASE("pending all-reduce: a ticket is finished once, with the count of its start") {
  const auto all = group(1);
  const float values[2] = {1, 2};
  const int64_t ticket = start_sum(all[0], "bucket 0", {{values, 2}});
  CHECK(error_code([&] { sum_of(ticket, 3); }) == Code::kInvalidArgument);
  CHECK(sum_of(ticket, 2) == std::vector<float>{1, 2});
  CHECK(error_code([&] { sum_of(ticket, 2); }) == Code::kInvalidArgument);
  CHECK(error_code([] { sum_of(-5, 2); }) == Code::kInvalidArgument);
}

TEST_CASE("pending all-reduce: those that no rank waits for end with their ranks") {
  auto all = group(1);
  const float value = 1;
  const int64_t first = start_sum(all[0], "bucket 0", {{&value, 1}});
  all[0]->run("a barrier", [](Communicator& c) { c.barrier(); });
  all.clear();
  const int64_t second = start_sum(group(1)[0], "bucket 0", {{&value, 1}});
  CHECK(error_code([&] { sum_of(first, 1); }) == Code::kInvalidArgument);
  CHECK(error_code([&] { sum_of(second, 1); }) == Code::kAborted);
}

}  // namespace hotrow
