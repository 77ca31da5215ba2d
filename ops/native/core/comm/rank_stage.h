// The counts of the stages of dispatch (Collectives::count).
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "core/comm/collectives.h"

namespace hotrow {

// Counts the time from construction to destruction as a call of a stage.
class RankStage {
 public:
  RankStage(Collectives& ranks, const char* name)
      : ranks_(ranks), name_(name), begin_(std::chrono::steady_clock::now()) {}
  ~RankStage() {
    const auto passed = std::chrono::steady_clock::now() - begin_;
    ranks_.count(name_, sent_, received_,
                 static_cast<uint64_t>(
                     std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count()));
  }
  RankStage(const RankStage&) = delete;
  // bytes: (R) to and from each rank.
  void count(const std::vector<size_t>& to, const std::vector<size_t>& from) {
    for (size_t r = 0; r < to.size(); ++r) {
      if (r == static_cast<size_t>(ranks_.rank())) continue;
      sent_ += to[r];
      received_ += from[r];
    }
  }

 private:
  Collectives& ranks_;
  const char* name_;
  std::chrono::steady_clock::time_point begin_;
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace hotrow
