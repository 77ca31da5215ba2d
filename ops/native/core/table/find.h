// How a lookup treats keys that have no row.
#pragma once

namespace hotrow {

// kRead: they read the default row. kTrain: their lookups are counted, and those that are admitted
// get a row. kTrainUncounted: the same uncounted, so that only a table without admission gives them
// one.
enum class Find { kRead, kTrain, kTrainUncounted };

}  // namespace hotrow
