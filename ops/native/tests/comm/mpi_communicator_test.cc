// Runs only under mpiexec, with libmpi.so.12 on LD_LIBRARY_PATH: every process is a rank.
#include "core/comm/mpi_communicator.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/comm/collectives.h"
#include "tests/comm/communicator_rounds.h"
#include "tests/error_code.h"
#include "tests/rank_threads.h"

namespace hotrow {
namespace {

constexpr double kLong = 60;
constexpr int kThreadMultiple = 3;

bool alone() { return std::getenv("PMI_SIZE") == nullptr; }

void* mpi_library() {
  static void* const library = ::dlopen("libmpi.so.12", RTLD_NOW);
  return library;
}

// MPI, from the first test to the end of the process; not finalised when a rank failed.
bool failed = false;
void start_mpi() {
  static const bool started = [] {
    REQUIRE(mpi_library() != nullptr);
    using Init = int (*)(int*, char***, int, int*);
    int provided = 0;
    REQUIRE(reinterpret_cast<Init>(::dlsym(mpi_library(), "MPI_Init_thread"))(
                nullptr, nullptr, kThreadMultiple, &provided) == 0);
    std::atexit([] {
      if (!failed) reinterpret_cast<int (*)()>(::dlsym(mpi_library(), "MPI_Finalize"))();
    });
    return provided == kThreadMultiple;
  }();
  REQUIRE(started);
}

}  // namespace

TEST_CASE("mpi communicator: every collective is right, many times" * doctest::skip(alone())) {
  start_mpi();
  const auto own = mpi_communicator("libmpi.so.12", kLong);
  for (int round = 0; round < 40; ++round) CHECK(wrong_in_round(*own, round) == "");
}

TEST_CASE("mpi communicator: large sums are right, and the same with a queue" *
          doctest::skip(alone())) {
  start_mpi();
  Collectives own(mpi_communicator("libmpi.so.12", kLong));
  const int ranks = own.size();
  for (const size_t count : {size_t{1024}, size_t{1025}, size_t{300001}}) {
    std::vector<float> values = values_of<float>(1, own.rank(), count);
    own.run("a sum", [&](Communicator& c) { c.all_reduce(values.data(), count); });
    CHECK(same_bits(values, sum_of_ranks<float>(1, ranks, count)));
  }
}

// A process can fail only once, so each of these two tests runs alone. The first process that ends
// without finalising MPI ends all, so each reports its result and waits a little.
namespace {

void fail_on_last_rank(bool while_others_wait) {
  start_mpi();
  failed = true;
  // This file, named by the ranks' common parent, shows the other ranks without MPI that a rank has
  // failed.
  const auto sign = std::filesystem::temp_directory_path() /
                    ("hotrow-rank-failed-" + std::to_string(::getppid()));
  Outcome outcome;
  {
    Collectives own(mpi_communicator("libmpi.so.12", kLong));
    const bool mine = own.rank() == own.size() - 1;
    const std::string wanted = "rank " + std::to_string(own.size() - 1) + ": the data is gone";
    // In a thread other than the queue's, as TensorFlow's threads may.
    std::thread failing([&] {
      if (!mine) return;
      if (while_others_wait) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      own.fail(Code::kDataLoss, "the data is gone");
      std::ofstream(sign) << wanted;
    });
    if (!while_others_wait) {
      while (!std::filesystem::exists(sign)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      // A failure after another rank's failure has that rank's error.
      const auto later = [&] { own.fail_and_throw(Code::kInternal, "no such row"); };
      CHECK(outcome_of(later).message == wanted);
    }
    outcome = outcome_of([&] {
      for (;;) {
        std::vector<float> values(100000);
        own.run("the next step",
                [&](Communicator& c) { c.all_reduce(values.data(), values.size()); });
      }
    });
    failing.join();
    CHECK(outcome.message == wanted);
  }
  CHECK(outcome.code == Code::kDataLoss);
  CHECK(error_code([] { mpi_communicator("libmpi.so.12", kLong); }) == Code::kFailedPrecondition);
  std::puts(outcome.message.c_str());
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

}  // namespace

TEST_CASE("failing mpi: a rank that fails while others wait ends all" * doctest::skip(alone())) {
  fail_on_last_rank(true);
}

TEST_CASE("failing mpi: a rank that fails beforehand ends those that come" *
          doctest::skip(alone())) {
  fail_on_last_rank(false);
}

}  // namespace hotrow
