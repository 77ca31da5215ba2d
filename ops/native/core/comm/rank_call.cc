#include "core/comm/rank_call.h"

#include <cstdio>

namespace hotrow {
namespace {

const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kNone:
      return "nothing";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "an unknown collective";
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

std::string RankCall::text() const {
  return what.empty() ? name_of(kind) : std::string(name_of(kind)) + " of \"" + what + "\"";
}

std::string late_text(const RankCall& call, double seconds, const std::vector<int>& late) {
  char waited[32];
  std::snprintf(waited, sizeof(waited), "%.6g", seconds);
  const std::string begin = std::string("waited ") + waited + " s in " + call.text();
  if (late.empty()) {
    return begin + ", where all ranks are: the network is slow or broken";
  }
  return begin + " for " + ranks_text(late) +
         ", which did not come: stuck, or slower than the timeout allows";
}

std::string ended_text(const RankCall& call, int rank) {
  return "waits in " + call.text() + " for rank " + std::to_string(rank) + ", which has ended";
}

std::string mismatch_text(const RankCall& own, int rank, const RankCall& theirs) {
  return "is in " + own.text() + " while rank " + std::to_string(rank) + " is in " + theirs.text() +
         "; all ranks must make the same calls in the same order";
}

std::string of_rank(int rank, const std::string& message) {
  return "rank " + std::to_string(rank) + ": " + message;
}

}  // namespace hotrow
