// The distinct keys of one table in a rank's batch, grouped by the ranks that own them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/dispatch.h"
#include "core/base/unique.h"
#include "core/kernels/feature.h"
#include "core/kernels/key_gradients.h"
#include "core/table/table.h"

namespace hotrow {

// N keys of all features in one row, U of them distinct. A distinct key's place is its number when
// keys are ordered by owner, and for one owner by first appearance.
class DistinctKeys {
 public:
  // Collects the keys of a table's features, one feature after the other. alike: all ranks own all
  // keys, so nothing is grouped. Fails when a key is out of the vocabulary or row_splits are wrong.
  void collect(const Table& table, const std::vector<const Feature*>& features, bool alike);

  size_t key_count() const { return place_of_.size(); }         // N
  const int32_t* place_of() const { return place_of_.data(); }  // (N)
  // The places of the f-th feature's keys.
  const int32_t* place_of(size_t f) const { return place_of_.data() + first_key_[f]; }
  size_t size() const { return keys_.size(); }                    // U
  const int64_t* keys() const { return keys_.data(); }            // (U) by place
  const uint32_t* lookups() const { return lookups_.data(); }     // (U) by place
  size_t begin_of(size_t owner) const { return begins_[owner]; }  // place; owner <= R

  // The gradients of the keys by place. features: the same as in `collect`; gradients[f]: of their
  // pooled values. The result is valid until the calling thread's next call.
  RowGradients order_gradients(const std::vector<const Feature*>& features,
                               const std::vector<const float*>& gradients, size_t width) const;

 private:
  std::vector<int64_t> all_;
  std::vector<size_t> first_key_;  // (F)
  Unique unique_;
  Dispatch dispatch_;
  std::vector<int32_t> place_of_, places_;
  std::vector<int64_t> keys_;
  std::vector<uint32_t> lookups_;
  std::vector<size_t> begins_;  // (R + 1)
};

// Distinct keys in a message, with the number of lookups that each stands for:
//   [keys: n x int64 | lookups: n x uint8, 255: see there | the large ones: x uint32 | pad to 8]
// Without lookups when each key stands for one lookup.
struct KeyMessage {
  int64_t keys = 0;    // n
  int64_t larges = 0;  // lookups of 255 and more; -1: all are 1

  static KeyMessage of(const uint32_t* lookups, size_t count);
  size_t bytes() const;
  void write(const int64_t* keys, const uint32_t* lookups, std::byte* message) const;
  const int64_t* read_keys(const std::byte* message) const;
  void read_lookups(const std::byte* message, uint32_t* lookups) const;  // (n)
};

}  // namespace hotrow
