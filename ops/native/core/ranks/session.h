// What a layer on several ranks keeps between its passes.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "core/ranks/prefetched_batch.h"
#include "core/ranks/rank_pass.h"
#include "core/table/table.h"

namespace hotrow {

struct RankSession : LayerSession {
  std::mutex mutex;                                // of all below
  std::vector<std::unique_ptr<RankPass>> waiting;  // of passes that wait for their backward passes
  std::deque<std::unique_ptr<PrefetchedBatch>>
      prefetched;  // in the order in which they are trained
};

// The session of the layer with this first table; the first call makes it.
RankSession& session_of(Table& first);

}  // namespace hotrow
