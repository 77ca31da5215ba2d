// Memory that ends in a step leaves the table as it was, wherever it ends.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/digest.h"
#include "tests/error_code.h"
#include "tests/failing_memory.h"
#include "tests/one_table.h"
#include "tests/temporary_directory.h"
#include "tests/test_size.h"

namespace hotrow {
namespace {

struct Case {
  std::string name;
  size_t cache_rows = 0;
  AdmissionKind admission = AdmissionKind::kAlways;
  bool disk = false, expiry = false, snapshot = false, waits = false;
};

TableOptions options_of(const Case& c, const std::string& directory) {
  TableOptions options;
  options.width = 5;
  options.init.kind = InitKind::kUniform;
  options.init.scale = 0.1f;
  options.optimizer.kind = OptimizerKind::kAdagrad;
  options.admission.kind = c.admission;
  options.admission.occurrences = 2;
  options.admission.expected_keys = 2000;
  if (c.expiry) {
    options.expiry.after_steps = 1;
    options.expiry.sweep_steps = 30;
  }
  if (c.cache_rows > 0) options.cache = {c.cache_rows, CachePolicy::kLfu};
  if (c.disk) options.disk = directory;
  return options;
}

// Distinct keys of two partitions, so that few keys make their indexes grow.
std::vector<int64_t> keys_of(size_t count, int64_t first) {
  std::vector<int64_t> keys;
  for (int64_t key = first; keys.size() < count; ++key) {
    if (mix64(static_cast<uint64_t>(key)) >> 60 == 3) keys.push_back(key);
  }
  return keys;
}

// A table after some steps, whose next step inserts, admits, evicts and removes rows.
struct Trained {
  Trained(const Case& c, const std::string& directory)
      : waits(c.waits), table("t", options_of(c, directory), 1, false) {
    const std::vector<int64_t> first = keys_of(1200, 0);
    train(table, first, 1.0f);
    train(table, first, 0.5f);
    batch = keys_of(200, 20000);
    for (size_t i = 0; i < 60; ++i) batch.push_back(first[3 * i]);
    // Occurrences of some keys of the batch, and rows that expire with it.
    train(table, {batch.begin(), batch.begin() + 90}, 0.25f);
    if (c.snapshot) {
      table.open_snapshot(Since::kAll)->close(true);
      table.begin_publishing(table.step());
      train(table, {batch.begin() + 200, batch.end()}, 0.25f);
      snapshot = table.open_snapshot(Since::kCheckpoint);
      publish_snapshot = table.open_snapshot(Since::kPublish);
      at_snapshot = exported(table, 1000);
    }
  }

  int64_t look_up() {
    std::vector<float> rows(batch.size() * table.width());
    return forward(call_of(table, batch), true, {rows.data()}, nullptr);
  }
  void update(int64_t ticket) {
    const std::vector<float> gradients(batch.size() * table.width(), 0.75f);
    BackwardOptions options;
    options.ticket = ticket;
    options.what = waits ? Backward::kAccumulate : Backward::kUpdate;
    options.slot = slot++ % GradientPasses::kSlots;
    backward(call_of(table, batch), {gradients.data()}, options);
    if (!waits) return;
    std::vector<float> commit_token(GradientPasses::kSlots, 0.0f);
    commit_token[options.slot] = GradientPasses::kUnit;
    commit({&table}, commit_token.data(), nullptr, 0.0f, Executor());
  }
  void check_same(const Trained& other) const {
    REQUIRE(table.size() == other.table.size());
    REQUIRE(exported(table, 1000) == exported(other.table, 1000));
    REQUIRE(digest_of(table) == digest_of(other.table));
    REQUIRE(table.state() == other.table.state());
  }

  const bool waits;
  size_t slot = 0;
  Table table;
  std::vector<int64_t> batch;
  std::unique_ptr<Snapshot> snapshot, publish_snapshot;
  Rows at_snapshot;
};

// Fails allocation `from` of a step. Returns whether the step needs that many.
bool fail_and_go_on(const Case& c, const std::string& directory, int64_t from, bool all) {
  CAPTURE(from);
  Trained trained(c, directory), never(c, directory);
  bool forward_failed = true;
  Code code = Code::kOk;
  bool failed;
  {
    std::string what;
    const FailingMemory memory(from, all);
    try {
      const int64_t ticket = trained.look_up();
      forward_failed = false;
      trained.update(ticket);
    } catch (const Error& error) {
      code = error.code();
    } catch (const std::bad_alloc&) {
      code = Code::kResourceExhausted;  // as the C ABI reports it
    }
    failed = memory.failed();
  }
  if (code != Code::kOk) {
    REQUIRE(code == Code::kResourceExhausted);
    if (!forward_failed) never.look_up();
    trained.check_same(never);
  }
  if (code != Code::kOk || forward_failed) trained.update(trained.look_up());
  never.update(never.look_up());
  trained.check_same(never);
  if (trained.snapshot != nullptr) {
    // The rows that were due are those of the snapshot's moment.
    Rows due = sorted(read_all(trained.table, *trained.snapshot, 100));
    REQUIRE(due == sorted(read_all(never.table, *never.snapshot, 100)));
    REQUIRE(due == sorted(read_all(trained.table, *trained.publish_snapshot, 100)));
    trained.publish_snapshot->close(true);
    trained.snapshot->close(true);
    never.snapshot->close(true);
  }
  return failed;
}

void check_case(const Case& c) {
  if (!kFailingMemory) return;
  const TemporaryDirectory directory;
  CAPTURE(c.name);
  for (const bool all : {false, true}) {
    CAPTURE(all);
    int64_t from = 0;
    // Every allocation, but of those for the rows of a batch only some. A table on disk starts
    // threads and takes longer.
    const int64_t step = kLess && c.disk ? 3 : 1;
    while (fail_and_go_on(c, directory / "", from, all)) from += kLess && from > 120 ? 13 : step;
    REQUIRE(from > 10);
  }
}

}  // namespace

TEST_CASE("out of memory: rows in memory") {
  check_case({"plain"});
  check_case({"gradients that wait", 0, AdmissionKind::kAlways, false, false, false, true});
}

TEST_CASE("out of memory: admission and expiry") {
  check_case({"counter", 0, AdmissionKind::kCounter, false, true});
  check_case({"filter", 0, AdmissionKind::kFilter, false, true});
}

TEST_CASE("out of memory: a cache before rows in memory and on disk") {
  check_case({"cache", 512, AdmissionKind::kCounter});
  if (!kLess) check_case({"disk", 512, AdmissionKind::kAlways, true});
  check_case({"disk with expiry", 512, AdmissionKind::kCounter, true, true});
}

TEST_CASE("out of memory: while a snapshot is open") {
  check_case({"snapshot", 0, AdmissionKind::kAlways, false, true, true});
  check_case({"snapshot of a disk", 512, AdmissionKind::kAlways, true, false, true});
}

TEST_CASE("out of memory: a snapshot that has no memory leaves the table free for the next") {
  if (!kFailingMemory) return;
  for (int64_t from = 0;; ++from) {
    CAPTURE(from);
    Trained trained({"plain"}, ""), never({"plain"}, "");
    bool failed;
    {
      const FailingMemory memory(from, false);
      try {
        trained.table.open_snapshot(Since::kAll)->close(false);
      } catch (const std::exception&) {
      }
      failed = memory.failed();
    }
    trained.check_same(never);
    const auto snapshot = trained.table.open_snapshot(Since::kAll);
    REQUIRE(sorted(read_all(trained.table, *snapshot)) == sorted(exported(never.table)));
    if (!failed) break;
  }
}

namespace {

// The address space of this process.
size_t mapped_bytes() {
  std::ifstream facts("/proc/self/statm");
  size_t pages = 0;
  facts >> pages;
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// Trains new rows of 2 KiB until memory ends; in a process of its own. Returns what is wrong.
std::string grow_to_the_limit() {
  const auto options = [] {
    TableOptions options = plain_options(512);
    options.init.kind = InitKind::kUniform;
    options.init.scale = 0.1f;
    return options;
  };
  std::vector<int64_t> keys(1000);
  std::vector<float> rows(keys.size() * 512), gradients(rows.size(), 0.5f);
  const auto step = [&](Table& table, int64_t number) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = number * 700 + static_cast<int64_t>(i);
    forward(call_of(table, keys), true, {rows.data()}, nullptr);
    update(table, keys, gradients);
  };
  // Of the rows of a snapshot, read in pieces.
  const auto snapshot_digest = [](Table& table) {
    std::vector<uint64_t> digest(2);
    std::vector<int64_t> read(100);
    std::vector<uint32_t> clocks(read.size()), counts(read.size());
    std::vector<std::byte> lines(read.size() * table.line_bytes());
    const auto snapshot = table.open_snapshot(Since::kAll);
    RowArrays out;
    out.keys = read.data();
    out.lines = lines.data();
    out.clocks = clocks.data();
    out.counts = counts.data();
    while (const size_t count = snapshot->read(read.size(), out)) {
      for (size_t i = 0; i < count; ++i) {
        add_row_digest(read[i], lines.data() + i * table.line_bytes(), table.line_bytes(),
                       digest.data());
      }
    }
    return digest;
  };
  rlimit before;
  ::getrlimit(RLIMIT_AS, &before);
  const rlimit limit{mapped_bytes() + (size_t{256} << 20), before.rlim_max};
  Table table("clicks", options(), 1, false);
  ::setrlimit(RLIMIT_AS, &limit);
  int64_t steps = 0;
  std::string message;
  for (; message.empty() && steps < 1000; ++steps) {
    try {
      step(table, steps);
    } catch (const Error& error) {
      message = error.what();
      if (error.code() != Code::kResourceExhausted) return "code";
    }
  }
  --steps;
  if (message.find("table clicks: no memory for ") != 0) return message;
  // A checkpoint is still possible.
  const std::vector<uint64_t> saved = snapshot_digest(table);
  ::setrlimit(RLIMIT_AS, &before);
  Table same("clicks", options(), 1, false);
  for (int64_t i = 0; i < steps; ++i) step(same, i);
  if (table.size() != same.size() || table.step() != same.step()) return "size";
  if (digest_of(table) != digest_of(same) || table.state() != same.state()) return "digest";
  if (saved != snapshot_digest(same)) return "snapshot";
  step(table, steps);
  step(same, steps);
  return digest_of(table) == digest_of(same) ? "" : "next step";
}

}  // namespace

TEST_CASE("out of memory: at a limit of the address space, rows and snapshots are intact") {
  if (!kFailingMemory) return;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string wrong;
    try {
      wrong = grow_to_the_limit();
    } catch (const std::exception& error) {
      wrong = std::string("exception: ") + error.what();
    }
    ::_exit(wrong.empty() ? 0 : (::write(ends[1], wrong.data(), wrong.size()) > 0 ? 1 : 2));
  }
  ::close(ends[1]);
  char text[2000];
  const ssize_t read = ::read(ends[0], text, sizeof(text));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(std::string(text, static_cast<size_t>(std::max<ssize_t>(read, 0))) == "");
  CHECK(status == 0);
}

TEST_CASE("out of memory: the error names the table, the bytes and what to do") {
  if (!kFailingMemory) return;
  std::string message;
  for (int64_t from = 0; message.find("embedding rows") == std::string::npos; ++from) {
    REQUIRE(from < 1000);
    Table table("clicks", plain_options(), 1, false);
    const std::vector<int64_t> keys = keys_of(100, 0);
    const FailingMemory memory(from, false);
    try {
      look_up(table, keys, true);
    } catch (const Error& error) {
      message = error.what();
      REQUIRE(message.find("table clicks: no memory for") == 0);
    } catch (const std::bad_alloc&) {
    }
  }
  CHECK(message.find("no memory for 65536 bytes of embedding rows") != std::string::npos);
  CHECK(message.find("Write a checkpoint") != std::string::npos);
}

}  // namespace hotrow
