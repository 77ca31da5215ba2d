// The keys of all features of a layer's call in one row on the device, grouped by table. F
// features, T tables, N keys.
#pragma once

#include <functional>
#include <vector>

#include "core/gpu/kernels/described.h"
#include "core/gpu/kernels/keys.h"
#include "core/gpu/kernels/runtime.h"
#include "core/table/training.h"

namespace hotrow {

// visit(t, f) for each feature, in the order of the tables.
template <typename Visit>
void each_feature(const LayerCall& call, Visit&& visit) {
  for (size_t t = 0; t < call.tables.size(); ++t) {
    for (size_t f = 0; f < call.features.size(); ++f) {
      if (call.table_of[f] == t) visit(t, f);
    }
  }
}

// Positions in that row.
struct KeyPlaces {
  std::vector<size_t> first_key;  // (F) of each feature's first key
  std::vector<uint32_t> begins;   // (T + 1) of each table's first key; the last is N

  // Fails with InvalidArgument for invalid features, as far as the host can check them, and for
  // more than 2^31 - 2 keys.
  static KeyPlaces of(const LayerCall& call);
  size_t count() const { return begins.back(); }
  size_t count_of(size_t table) const { return begins[table + 1] - begins[table]; }
  bool operator==(const KeyPlaces& other) const {
    return first_key == other.first_key && begins == other.begins;
  }
};

// On the device.
struct CallKeys {
  int64_t* keys = nullptr;           // (N)
  uint32_t* table_begins = nullptr;  // (T + 1)
  WrongKeys* wrong = nullptr;        // what is wrong with them
  DeviceKeyPieces pieces = {};       // where they come from
  bool counted = false;              // whether some stand for several lookups

  // Collects into `memory`, which loses its contents. also (may be null): adds what else describes
  // the call, for the same upload.
  static CallKeys collect(const LayerCall& call, const KeyPlaces& places, DeviceBlock* memory,
                          DeviceStream stream,
                          const std::function<void(DeviceDescribed*)>& also = {});
};

// Throws the error: row_splits of a feature, or a key out of its vocabulary. key: the value at
// wrong.key.
[[noreturn]] void refuse_splits(const LayerCall& call, const WrongKeys& wrong);
[[noreturn]] void refuse_key(const LayerCall& call, const KeyPlaces& places, const WrongKeys& wrong,
                             int64_t key);

}  // namespace hotrow
