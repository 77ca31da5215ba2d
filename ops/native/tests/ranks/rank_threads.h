// Ranks that are threads of this process.
#pragma once

#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "core/comm/collectives.h"
#include "core/comm/thread_communicator.h"

namespace hotrow {

// Runs each rank's work on its own thread; throws the failure of a rank.
template <typename Do>
void on_each(int ranks, Do&& what) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        what(r);
      } catch (...) {
        failures[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

inline std::vector<std::shared_ptr<Collectives>> ranks_of(int count) {
  std::vector<std::shared_ptr<Collectives>> ranks;
  for (auto& communicator : thread_communicators(count, 20.0)) {
    ranks.push_back(std::make_shared<Collectives>(std::move(communicator)));
  }
  return ranks;
}

}  // namespace hotrow
