// Runs a body on every rank of a group of threads.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/thread_communicator.h"

namespace hotrow {

// The failure of a rank's body; kOk and "" if none.
struct Outcome {
  Code code = Code::kOk;
  std::string message;
};

template <typename Body>
Outcome outcome_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

// Runs body(r) on a thread for each rank r. Returns the outcomes by rank when all ended.
template <typename Body>
std::vector<Outcome> on_ranks(int ranks, Body&& body) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back(
        [&, r] { outcomes[static_cast<size_t>(r)] = outcome_of([&] { body(r); }); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// Runs body(communicator) on each rank; destroys the communicator when the body ends.
template <typename Body>
std::vector<Outcome> with_communicators(int ranks, double timeout_seconds, Body&& body) {
  auto all = thread_communicators(ranks, timeout_seconds);
  return on_ranks(ranks, [&](int r) {
    const auto own = std::move(all[static_cast<size_t>(r)]);
    body(*own);
  });
}

}  // namespace hotrow
