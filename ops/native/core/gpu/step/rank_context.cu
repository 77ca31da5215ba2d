#include "core/gpu/step/rank_context.h"

namespace hotrow {

LayerCall DeviceRankContext::part(bool shares) const {
  LayerCall part = call;
  for (size_t f = 0; f < part.features.size(); ++f) {
    if (shares_batches(part.table_of[f]) == shares) continue;
    part.features[f].segments = {};
    part.features[f].counts = nullptr;
  }
  return part;
}

void DeviceRankContext::refuse_wrong(const LayerCall& part, const KeyPlaces& places,
                                     const CallKeys& keys, const WrongKeys& wrong,
                                     int64_t* key) const {
  if (wrong.feature != WrongKeys::kNone) refuse_splits(part, wrong);
  if (wrong.key == WrongKeys::kNone) return;
  copy_async(key, keys.keys + wrong.key, 1, stream);
  memory.ready.record(stream);
  memory.ready.wait();
  refuse_key(part, places, wrong, *key);
}

}  // namespace hotrow
