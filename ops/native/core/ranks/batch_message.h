// The features of a rank's batch in a message to all ranks: schemes kColumn and kRowBroadcast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/kernels/feature.h"

namespace hotrow {

// For each feature: [keys: N x int64 | row splits: (B + 1) x int64, if any | weights: N x float32,
// if any, padded to 8].
class BatchMessage {
 public:
  static constexpr size_t kFacts = 3;  // of a feature

  // At home: takes the features, which must live until they are written.
  void collect(const std::vector<const Feature*>& features);
  void write_facts(int64_t* facts) const;  // (F x kFacts)
  void write(std::byte* message) const;

  // Reads another rank's facts of as many features; names and combiners come from `like`.
  void read_facts(const std::vector<Feature>& like, const int64_t* facts);
  // Takes the message; the features then point into it.
  void take(const std::byte* message);

  size_t bytes() const;
  size_t outputs() const;  // of all features together
  const std::vector<Feature>& features() const { return features_; }

 private:
  std::vector<Feature> features_;
  std::vector<bool> has_splits_, has_weights_;
};

}  // namespace hotrow
