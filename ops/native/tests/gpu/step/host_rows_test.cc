// The host tier of tables on a GPU: its memory is registered while it exists, and who reads its
// rows waits for those on their way.
#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/gpu/step/tier.h"
#include "core/table/snapshot.h"
#include "tests/error_code.h"
#include "tests/gpu/prefetched_pair.h"

namespace hotrow {

TEST_CASE("device host rows: a row that was looked up but not updated is no change of the table") {
  Pair pair(kind_of(32, CachePolicy::kLru));
  pair.train(range(0, 500));
  const auto keep = [](Table& table) {
    auto snapshot = table.open_snapshot(Since::kCheckpoint);
    Rows rows = sorted(read_all(table, *snapshot, 100));
    snapshot->close(true);
    return rows;
  };
  CHECK(keep(pair.table()) == keep(*pair.plain.all[0]));
  // Lookups of training without a backward pass; then their slots are taken.
  const std::vector<Input> in = pair.inputs(range(0, 100));
  HostSide(pair.plain, in, Executor()).forward(true);
  DeviceSide(pair.tiered, in, Executor(), pair.stream).forward(true);
  const uint64_t before = counts_of(pair.table()).written_back;
  pair.train(range(200, 40));
  const Rows changed = keep(pair.table());
  CHECK(changed.size() == 40);
  CHECK(changed == keep(*pair.plain.all[0]));
  CHECK(counts_of(pair.table()).written_back - before == 40);
  pair.check();
}

TEST_CASE("device host rows: a snapshot keeps the rows that kernels write over while it is read") {
  for (const CachePolicy policy : {CachePolicy::kLru, CachePolicy::kLfu}) {
    // Victims with kLru, rows of the bypass with kLfu.
    Pair pair(kind_of(32, policy));
    for (int i = 0; i < 3; ++i) pair.train(range(0, 300));
    for (const bool due_only : {false, true, true}) {
      const auto run = [&](Table& table, auto& side) {
        auto snapshot = table.open_snapshot(due_only ? Since::kCheckpoint : Since::kAll);
        Rows rows = read_all(table, *snapshot, 20);
        side.backward(now(side.forward(true)));
        if (&table == &pair.table()) {
          // A window evicts rows that were updated since.
          ahead_and_wait(table, range(0, 100));
          must(cudaDeviceSynchronize());
        }
        const Rows rest = read_all(table, *snapshot, 20);
        rows.insert(rows.end(), rest.begin(), rest.end());
        snapshot->close(true);
        return sorted(rows);
      };
      const std::vector<Input> in = pair.inputs(range(100, 150));
      HostSide host(pair.plain, in, Executor());
      DeviceSide device(pair.tiered, in, Executor(), pair.stream);
      const Rows expected = run(*pair.plain.all[0], host);
      CHECK(expected.size() == (due_only ? 150 : 300));
      CHECK(run(pair.table(), device) == expected);
    }
    pair.check();
  }
}

#if defined(HOTROW_SIMT)
TEST_CASE("device host rows: the memory of rows is registered as long as it exists") {
  const size_t before = simt::registrations();
  {
    Pair pair(kind_of(64));
    pair.train(range(0, 3000));
    const size_t with_rows = simt::registrations();
    CHECK(with_rows > before);
    pair.train(range(3000, 30000));
    CHECK(simt::registrations() > with_rows);
    pair.check();
    pair.table().clear();
    pair.plain.all[0]->clear();
    CHECK(simt::registrations() == before);
    pair.train(range(10, 300));
    pair.check();
  }
  CHECK(simt::registrations() == before);
}

TEST_CASE("device host rows: memory that cannot be registered fails by name and is not leaked") {
  const size_t before = simt::registrations();
  for (const size_t number : {0, 1}) {  // the registration, and the address
    Pair pair(kind_of(64));
    const std::vector<Input> in = pair.inputs(range(0, 3000));
    {
      DeviceSide device(pair.tiered, in, Executor(), pair.stream);
      const simt::Failures failures(simt::kRegistrations, number);
      std::string message;
      try {
        device.forward(true);
      } catch (const Error& error) {
        message = error.what();
        CHECK(error.code() == Code::kResourceExhausted);
      }
      CHECK(failures.count() == 1);
      CHECK(message.find("table t0: CUDA cannot register ") == 0);
      CHECK(message.find("for GPU 0: out of memory; ") != std::string::npos);
      CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
    CHECK(simt::registrations() == before);
    pair.train(range(0, 3000));
    pair.check();
  }
}

TEST_CASE("device host rows: who reads them waits for the rows on their way") {
  Pair pair(kind_of(64));
  for (int i = 0; i < 2; ++i) pair.train(range(0, 500));
  const std::vector<Input> in = pair.inputs(range(0, 500));
  HostSide host(pair.plain, in, Executor());
  DeviceSide device(pair.tiered, in, Executor(), pair.stream);
  host.backward(now(host.forward(true)));
  const int64_t ticket = device.forward(true);
  std::optional<simt::HeldStream> held(pair.stream.get());
  device.backward(now(ticket));
  auto read = std::async(std::launch::async, [&] {
    const std::shared_lock lock(pair.table().mutex());
    pair.table().tier().wait_for_host_rows();
  });
  bool waits = false;
  while (!waits && read.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    std::this_thread::yield();
    waits = simt::blocked_threads() > 0;
  }
  CHECK(waits);
  held.reset();
  read.get();
  pair.check();
}
#endif

}  // namespace hotrow
