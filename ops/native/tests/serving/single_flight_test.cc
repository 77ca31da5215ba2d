#include "core/serving/single_flight.h"

#include <doctest/doctest.h>

#include <random>
#include <thread>

#include "tests/error_code.h"
#include "tests/serving/slow_reader.h"
#include "tests/stored_rows.h"

namespace hotrow {
namespace {

// A read of one table, with its results.
struct Fetch {
  Fetch(std::vector<int64_t> keys, size_t width)
      : keys(std::move(keys)),
        rows(this->keys.size() * width),
        versions(this->keys.size()),
        states(this->keys.size(), ReadState::kFailed) {}
  void run(SingleFlight& flights, uint64_t ticket, Deadline deadline) {
    const ReadRequest request = {0,
                                 keys.data(),
                                 keys.size(),
                                 reinterpret_cast<std::byte*>(rows.data()),
                                 versions.data(),
                                 states.data()};
    failure = flights.read(&request, 1, ticket, deadline, nullptr);
  }
  std::vector<int64_t> keys;
  std::vector<float> rows;
  std::vector<RowVersion> versions;
  std::vector<ReadState> states;
  ReadFailure failure;
};

constexpr size_t kWidth = 3;

struct Store {
  Store() : memory({stored_table("users", kWidth, StoredType::kFloat32, 0)}), slow(memory) {
    put_rows(memory, 0, 0, 100, 4);
  }
  bool right(const Fetch& fetch, size_t i, RowVersion version = 4) const {
    const std::vector<float> row = weights_of(0, fetch.keys[i], version, kWidth);
    return fetch.states[i] == ReadState::kFound && fetch.versions[i] == version &&
           std::equal(row.begin(), row.end(), fetch.rows.begin() + i * kWidth);
  }
  void await_waiting(const SingleFlight& flights, uint64_t count) const {
    while (flights.waited() < count) std::this_thread::yield();
  }
  MemoryReader memory;
  SlowReader slow;
};

}  // namespace

TEST_CASE(
    "single flight: lookups that miss one key at a time make one fetch, and all get its row") {
  const Store store;
  SlowReader& slow = const_cast<SlowReader&>(store.slow);
  SingleFlight flights(store.slow);
  slow.set_open(false);
  std::vector<Fetch> fetches(8, Fetch({7, 200}, kWidth));
  std::vector<std::thread> threads;
  for (Fetch& fetch : fetches) {
    threads.emplace_back([&] { fetch.run(flights, 0, never()); });
  }
  store.await_waiting(flights, 14);
  slow.set_open(true);
  for (std::thread& thread : threads) thread.join();
  CHECK(slow.reads() == 1);
  CHECK(slow.keys() == 2);
  for (const Fetch& fetch : fetches) {
    CHECK(fetch.failure.code == Code::kOk);
    CHECK(store.right(fetch, 0));
    CHECK(fetch.states[1] == ReadState::kUnknown);
  }
  // Nothing is left of it.
  Fetch next({7}, kWidth);
  next.run(flights, 0, never());
  CHECK(store.right(next, 0));
  CHECK(slow.reads() == 2);
}

TEST_CASE(
    "single flight: a lookup reads what no other one fetches, and waits for the rest at its own "
    "deadline") {
  Store store;
  SingleFlight flights(store.slow);
  store.slow.set_open(false);
  Fetch first({1, 2}, kWidth), second({2, 3}, kWidth);
  std::thread leader([&] { first.run(flights, 0, never()); });
  store.slow.await_reads(1);
  const auto begin = std::chrono::steady_clock::now();
  second.run(flights, 0, in_milliseconds(50));
  const auto took = std::chrono::steady_clock::now() - begin;
  CHECK(took >= std::chrono::milliseconds(50));
  CHECK(took < std::chrono::seconds(5));
  CHECK(second.states == std::vector<ReadState>(2, ReadState::kFailed));
  CHECK(second.failure.code == Code::kUnavailable);
  CHECK(store.slow.keys() == 3);  // 1, 2 and 3
  store.slow.set_open(true);
  leader.join();
  CHECK(store.right(first, 0));
  CHECK(store.right(first, 1));
}

TEST_CASE("single flight: a fetch older than the ticket is not waited for") {
  Store store;
  SingleFlight flights(store.slow);
  store.slow.set_open(false);
  Fetch old({5}, kWidth), fresh({5}, kWidth), late({5}, kWidth), later({5}, kWidth);
  std::thread leader([&] { old.run(flights, 1, in_milliseconds(300)); });
  store.slow.await_reads(1);
  put_rows(store.memory, 0, 5, 6, 9);
  std::thread second([&] { fresh.run(flights, 2, never()); });
  store.slow.await_reads(2);
  // A lookup that need not read the update may take the newer fetch.
  std::thread third([&] { late.run(flights, 1, never()); });
  store.await_waiting(flights, 1);
  // The older fetch ends, and lookups still find the newer one.
  leader.join();
  std::thread fourth([&] { later.run(flights, 2, never()); });
  store.await_waiting(flights, 2);
  store.slow.set_open(true);
  second.join();
  third.join();
  fourth.join();
  CHECK(old.states[0] == ReadState::kFailed);
  for (const Fetch* fetch : {&fresh, &late, &later}) CHECK(store.right(*fetch, 0, 9));
  CHECK(store.slow.reads() == 2);
}

TEST_CASE(
    "single flight: who waited for a fetch that failed asks once more, and fails only itself") {
  Store store;
  SingleFlight flights(store.slow);
  store.slow.set_open(false);
  Fetch hasty({5}, kWidth), patient({5}, kWidth);
  std::thread leader([&] { hasty.run(flights, 0, in_milliseconds(300)); });
  store.slow.await_reads(1);
  std::thread follower([&] { patient.run(flights, 0, never()); });
  leader.join();
  CHECK(hasty.states[0] == ReadState::kFailed);
  store.slow.await_reads(2);
  store.slow.set_open(true);
  follower.join();
  CHECK(store.right(patient, 0));
  CHECK(patient.failure.code == Code::kOk);

  store.slow.set_failing({5});
  Fetch failing({5, 6}, kWidth);
  failing.run(flights, 0, never());
  CHECK(failing.states[0] == ReadState::kFailed);
  CHECK(store.right(failing, 1));
  CHECK(failing.failure.message == "shard 3 is away");
  store.slow.set_failing({});
  failing.run(flights, 0, never());
  CHECK(store.right(failing, 0));
}

TEST_CASE("single flight: a reader that throws leaves no lookup waiting") {
  Store store;
  SingleFlight flights(store.slow);
  store.slow.set_throwing(true);
  Fetch fetch({5}, kWidth);
  CHECK(error_code([&] { fetch.run(flights, 0, never()); }) == Code::kInternal);
  store.slow.set_throwing(false);
  fetch.run(flights, 0, in_milliseconds(1000));
  CHECK(store.right(fetch, 0));
}

TEST_CASE("single flight: many threads with many keys all get theirs") {
  Store store;
  SingleFlight flights(store.slow);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 500; ++i) {
        std::set<int64_t> keys;
        while (keys.size() < 12) keys.insert(static_cast<int64_t>(random() % 120));
        Fetch fetch({keys.begin(), keys.end()}, kWidth);
        fetch.run(flights, random() % 3, never());
        for (size_t k = 0; k < fetch.keys.size(); ++k) {
          wrong +=
              fetch.keys[k] < 100 ? !store.right(fetch, k) : fetch.states[k] != ReadState::kUnknown;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace hotrow
