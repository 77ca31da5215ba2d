#include "core/comm/collectives.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <random>

#include "core/ranks/facts.h"
#include "tests/comm/communicator_rounds.h"
#include "tests/error_code.h"
#include "tests/rank_threads.h"

namespace hotrow {
namespace {

constexpr double kLong = 60;

std::vector<std::shared_ptr<Collectives>> group(int ranks, double timeout_seconds = kLong) {
  std::vector<std::shared_ptr<Collectives>> all;
  for (auto& communicator : thread_communicators(ranks, timeout_seconds)) {
    all.push_back(std::make_shared<Collectives>(std::move(communicator)));
  }
  return all;
}

}  // namespace

TEST_CASE("collectives: work runs in the order of the queue, whatever order it is waited for") {
  const auto all = group(3);
  const auto outcomes = on_ranks(3, [&](int r) {
    Collectives& own = *all[static_cast<size_t>(r)];
    CHECK(own.rank() == r);
    CHECK(own.size() == 3);
    constexpr int kWorks = 100;
    std::vector<float> sums(kWorks);
    std::vector<uint64_t> tickets;
    for (int i = 0; i < kWorks; ++i) {
      tickets.push_back(own.submit("sum " + std::to_string(i), [&sums, i, r](Communicator& c) {
        sums[static_cast<size_t>(i)] = static_cast<float>(i * (r + 1));
        c.all_reduce(&sums[static_cast<size_t>(i)], 1);
      }));
    }
    std::shuffle(tickets.begin(), tickets.end(), std::mt19937(static_cast<uint32_t>(r)));
    for (const uint64_t ticket : tickets) own.wait(ticket);
    for (int i = 0; i < kWorks; ++i) CHECK(sums[static_cast<size_t>(i)] == 6.0f * i);
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
}

TEST_CASE("collectives: the name of the work is what messages call it") {
  const auto all = group(2, 0.05);
  const Outcome outcome =
      outcome_of([&] { all[0]->run("rows of step 12", [](Communicator& c) { c.barrier(); }); });
  CHECK(outcome.code == Code::kDeadlineExceeded);
  CHECK(outcome.message.find(
            "rank 0: waited 0.05 s in barrier of \"rows of step 12\" for rank 1") == 0);
}

TEST_CASE("collectives: work that throws ends all ranks with its code and words") {
  const auto all = group(3);
  const auto outcomes = on_ranks(3, [&](int r) {
    all[static_cast<size_t>(r)]->run("step 1", [r](Communicator& c) {
      if (r == 2) hotrow::fail(Code::kNotFound, "table %s is gone", "users");
      c.barrier();
    });
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.message == "rank 2: table users is gone");
    CHECK(outcome.code == Code::kNotFound);
  }
  // Nothing runs after that, not even local work.
  for (const auto& own : all) {
    bool ran = false;
    const Outcome later =
        outcome_of([&] { own->run("step 2", [&](Communicator&) { ran = true; }); });
    CHECK(later.message == "rank 2: table users is gone");
    CHECK_FALSE(ran);
  }
}

TEST_CASE("collectives: what is not an error of ours ends all ranks, too") {
  const auto all = group(2);
  const auto outcomes = on_ranks(2, [&](int r) {
    all[static_cast<size_t>(r)]->run("large step", [r](Communicator& c) {
      if (r == 0) throw std::bad_alloc();
      c.barrier();
    });
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Code::kResourceExhausted);
    CHECK(outcome.message == "rank 0: out of memory in \"large step\"");
  }
}

TEST_CASE("collectives: what fails since another rank failed has that rank's error") {
  const auto all = group(2);
  const auto failure_of = [&](int r, const std::function<void()>& part) {
    const Outcome outcome = outcome_of(part);
    CHECK_MESSAGE(outcome.code == Code::kDataLoss, r);
    CHECK_MESSAGE(outcome.message == "rank 1: the data is gone", r);
  };
  on_ranks(2, [&](int r) {
    Collectives& own = *all[static_cast<size_t>(r)];
    own.run("step 1", [](Communicator& c) { c.barrier(); });
    failure_of(r, [&] {
      own.run("step 2", [r](Communicator& c) {
        if (r == 1) hotrow::fail(Code::kDataLoss, "the data is gone");
        outcome_of([&] { c.barrier(); });
        hotrow::fail(Code::kInternal, "count of keys is -7");
      });
    });
    failure_of(r, [&] { own.fail_and_throw(Code::kInternal, "no such row"); });
    failure_of(r, [&] { for_all_ranks(own, [] { throw std::bad_alloc(); }); });
    failure_of(r, [&] { for_all_ranks(own, [] { throw std::out_of_range("vector"); }); });
  });
}

TEST_CASE("collectives: an agreed error ends the work alone") {
  const auto all = group(2);
  const auto outcomes = on_ranks(2, [&](int r) {
    Collectives& own = *all[static_cast<size_t>(r)];
    const Outcome outcome = outcome_of([&] {
      own.run("keys", [](Communicator& c) {
        c.barrier();
        throw AgreedError(Code::kInvalidArgument, "rank 1: key -7");
      });
    });
    CHECK(outcome.code == Code::kInvalidArgument);
    CHECK(outcome.message == "rank 1: key -7");
    own.run("more keys", [](Communicator& c) { c.barrier(); });
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
}

TEST_CASE("collectives: fail ends what is in flight and what comes") {
  const auto all = group(2);
  const uint64_t first = all[0]->submit("first", [](Communicator& c) { c.barrier(); });
  const uint64_t second = all[0]->submit("second", [](Communicator& c) { c.barrier(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  all[1]->fail(Code::kUnavailable, "the data is gone");
  for (const uint64_t ticket : {second, first}) {
    CHECK(outcome_of([&] { all[0]->wait(ticket); }).message == "rank 1: the data is gone");
  }
}

TEST_CASE("collectives: who must not block is called") {
  const auto all = group(2);
  on_ranks(2, [&](int r) {
    Collectives& own = *all[static_cast<size_t>(r)];
    std::promise<void> before, failed, after;
    own.when_done(own.submit("a", [](Communicator& c) { c.barrier(); }),
                  [&](std::exception_ptr error) {
                    CHECK(error == nullptr);
                    before.set_value();
                  });
    before.get_future().get();
    const uint64_t done = own.submit("b", [](Communicator& c) { c.barrier(); });
    own.run("c", [](Communicator&) {});  // b is done before it
    own.when_done(done, [&](std::exception_ptr) { after.set_value(); });
    after.get_future().get();
    own.when_done(own.submit("d",
                             [](Communicator& c) {
                               c.barrier();
                               throw AgreedError(Code::kOutOfRange, "far");
                             }),
                  [&](std::exception_ptr error) {
                    CHECK(error_code([&] { std::rethrow_exception(error); }) == Code::kOutOfRange);
                    failed.set_value();
                  });
    failed.get_future().get();
  });
}

TEST_CASE("collectives: a ticket is waited for once, and not from work") {
  const auto all = group(1);
  const uint64_t ticket = all[0]->submit("nothing", [](Communicator&) {});
  all[0]->wait(ticket);
  CHECK(error_code([&] { all[0]->wait(ticket); }) == Code::kInvalidArgument);
  CHECK(error_code([&] { all[0]->wait(999); }) == Code::kInvalidArgument);
  CHECK(error_code([&] {
          all[0]->run("outer", [&](Communicator&) { all[0]->run("inner", [](Communicator&) {}); });
        }) == Code::kInternal);
}

TEST_CASE(
    "collectives: what has not begun when they end does not run, and who waits gets an error") {
  auto all = group(2);
  std::promise<void> begun, go;
  bool ran = false;
  all[0]->submit("in flight", [&](Communicator&) {
    begun.set_value();
    go.get_future().get();
  });
  const uint64_t later = all[0]->submit("later", [&](Communicator&) { ran = true; });
  std::promise<Code> code;
  all[0]->when_done(later, [&](std::exception_ptr error) {
    code.set_value(error_code([&] { std::rethrow_exception(error); }));
  });
  begun.get_future().get();
  std::thread closer([&] { all[0].reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  go.set_value();
  closer.join();
  CHECK(code.get_future().get() == Code::kAborted);
  CHECK_FALSE(ran);
}

TEST_CASE("collectives: the last to hold them may be the one notified that work is done") {
  auto all = group(1);
  std::promise<void> over;
  std::promise<void> go;
  const uint64_t ticket = all[0]->submit("work", [&](Communicator&) { go.get_future().get(); });
  Collectives* const raw = all[0].get();
  raw->when_done(ticket, [held = std::move(all[0]), &over](std::exception_ptr) mutable {
    held.reset();
    over.set_value();
  });
  go.set_value();
  over.get_future().get();
}

TEST_CASE("collectives: calls of a stage are counted, from all threads") {
  const auto all = group(1);
  std::vector<std::thread> threads;
  all[0]->count("sizes", 1, 2, 3);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) {
        all[0]->count("rows", 10, 20, 30);
        all[0]->count("keys", 1, 0, 5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<StageCount> counts = all[0]->counts();
  REQUIRE(counts.size() == 3);
  CHECK(counts[0].stage == "sizes");
  CHECK(counts[0].nanoseconds == 3);
  const StageCount& rows = counts[1].stage == "rows" ? counts[1] : counts[2];
  CHECK(rows.calls == 400);
  CHECK(rows.bytes_sent == 4000);
  CHECK(rows.bytes_received == 8000);
  CHECK(rows.nanoseconds == 12000);
}

TEST_CASE("collectives: they are found by name until it is dropped") {
  const auto all = group(2);
  add_collectives("of the test", all[1]);
  CHECK(find_collectives("of the test")->rank() == 1);
  CHECK(error_code([&] { add_collectives("of the test", all[0]); }) == Code::kAlreadyExists);
  drop_collectives("of the test");
  drop_collectives("of the test");
  CHECK(error_code([] { find_collectives("of the test"); }) == Code::kNotFound);
}

}  // namespace hotrow
