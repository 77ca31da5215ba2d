// How a lookup treats keys that have no row.
#pragma once

namespace hotrow {

// kRead: they read the default row. kTrain: their lookups are counted, and those that are admitted
// get a row. kTrainUncounted: the same, but lookups are not counted, so only a table without
// admission gives them a row.
enum class Find { kRead, kTrain, kTrainUncounted };

}  // namespace hotrow
