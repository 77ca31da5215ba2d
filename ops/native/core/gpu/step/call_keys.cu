#include <algorithm>
#include <limits>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/step/call_keys.h"

namespace hotrow {
KeyPlaces KeyPlaces::of(const LayerCall& call) {
  KeyPlaces places;
  places.first_key.assign(call.features.size(), 0);
  places.begins.assign(call.tables.size() + 1, 0);
  size_t count = 0;
  each_feature(call, [&](size_t t, size_t f) {
    const Segments& segments = call.features[f].segments;
    // With row_splits, the device checks.
    if (segments.row_splits == nullptr) check_segments(segments, call.features[f].name);
    places.first_key[f] = count;
    count += segments.keys;
    if (count > size_t{std::numeric_limits<int32_t>::max()} - 1) {
      fail(Code::kInvalidArgument, "a batch of more than 2147483646 keys in one lookup");
    }
    places.begins[t + 1] = static_cast<uint32_t>(count);
  });
  // Of tables without features.
  for (size_t t = 0; t < call.tables.size(); ++t) {
    places.begins[t + 1] = std::max(places.begins[t], places.begins[t + 1]);
  }
  return places;
}

CallKeys CallKeys::collect(const LayerCall& call, const KeyPlaces& places, DeviceBlock* memory,
                           DeviceStream stream, const std::function<void(DeviceDescribed*)>& also) {
  const size_t features = call.features.size();
  std::vector<DeviceKeyPiece> pieces;
  std::vector<uint32_t> begins, split_begins(1, 0);
  uint64_t splits = 0;
  CallKeys out;
  each_feature(call, [&](size_t t, size_t f) {
    const Feature& feature = call.features[f];
    const Segments& s = feature.segments;
    pieces.push_back({feature.keys, feature.counts, s.row_splits,
                      call.tables[t]->options().vocabulary_size, static_cast<int64_t>(s.keys)});
    begins.push_back(static_cast<uint32_t>(places.first_key[f]));
    splits += s.row_splits == nullptr ? 0 : s.samples + 1;
    if (splits > WrongKeys::kNone - 1) {
      fail(Code::kInvalidArgument, "more than 2^32 - 2 row_splits");
    }
    split_begins.push_back(static_cast<uint32_t>(splits));
    out.counted = out.counted || feature.counts != nullptr;
  });
  begins.push_back(static_cast<uint32_t>(places.count()));
  const size_t bytes = DeviceDescribed::bytes_for(features, call.tables.size());
  DeviceDescribed described;
  take_from(*memory, [&](DeviceArena& arena) {
    described = DeviceDescribed(arena.take<std::byte>(bytes), bytes);
    out.wrong = arena.take<WrongKeys>(1);
    out.keys = arena.take<int64_t>(places.count());
  });
  out.table_begins = described.add(places.begins);
  out.pieces = {described.add(pieces), features,
                described.add(begins), splits == 0 ? nullptr : described.add(split_begins),
                places.count(),        static_cast<size_t>(splits)};
  if (also) also(&described);
  described.upload(stream);
  device_collect_keys(out.pieces, out.keys, out.wrong, stream);
  return out;
}

void refuse_splits(const LayerCall& call, const WrongKeys& wrong) {
  size_t number = wrong.feature;
  each_feature(call, [&](size_t, size_t f) {
    if (number-- != 0) return;
    fail(Code::kInvalidArgument, "feature %s: row_splits must ascend from 0 to %zu",
         call.features[f].name, call.features[f].segments.keys);
  });
  fail(Code::kInternal, "feature %u of %zu is wrong", wrong.feature, call.features.size());
}

void refuse_key(const LayerCall& call, const KeyPlaces& places, const WrongKeys& wrong,
                int64_t key) {
  const auto next = std::upper_bound(places.begins.begin(), places.begins.end(), wrong.key);
  const Table& table = *call.tables[static_cast<size_t>(next - places.begins.begin()) - 1];
  fail(Code::kOutOfRange, "table %s: key %lld; its vocabulary_size allows [0, %lld)",
       table.name().c_str(), static_cast<long long>(key),
       static_cast<long long>(table.options().vocabulary_size));
}

}  // namespace hotrow
