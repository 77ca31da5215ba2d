// The collective in which a rank waits for other ranks, and the messages when they do not come.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace hotrow {

enum class CollectiveKind : int {
  kNone = 0,
  kAllToAll,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kBarrier,
};
constexpr size_t kCollectiveKinds = 7;

// A collective of a rank. `what`: Communicator::begin.
struct RankCall {
  CollectiveKind kind = CollectiveKind::kNone;
  std::string what;

  bool operator==(const RankCall& other) const { return kind == other.kind && what == other.what; }
  // all_to_all of "rows of step 12"
  std::string text() const;
};

// Messages of the rank that detects the problem; Communicator::fail puts "rank 0: " before them.
std::string late_text(const RankCall& call, double seconds, const std::vector<int>& late);
std::string ended_text(const RankCall& call, int rank);
std::string mismatch_text(const RankCall& own, int rank, const RankCall& theirs);

// "rank 3: <message>".
std::string of_rank(int rank, const std::string& message);

}  // namespace hotrow
