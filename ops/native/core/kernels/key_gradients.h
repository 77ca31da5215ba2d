// The gradients of a batch's keys, and their sums per distinct key: the backward half of pooling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/kernels/feature.h"
#include "core/kernels/kernels.h"

namespace hotrow {

// The gradient rows of a table's keys, by position: pointer and share. N keys of all features, one
// feature after the other; D width.
class KeyGradients {
 public:
  // gradients[f]: of the pooled values of features[f], (B_f, D), or (N_f, D) without a combiner.
  // All must live as long as this is used.
  void collect(const std::vector<const Feature*>& features,
               const std::vector<const float*>& gradients, size_t width);

  bool plain() const { return plain_; }  // every key has a gradient row of its own, share 1
  float share(size_t position) const { return shares_[position]; }

  // Calls visit(i, gradient row) for ascending positions[i]; positions null: i itself.
  template <typename Visit>
  void each(const uint32_t* positions, size_t count, Visit&& visit) const {
    if (!plain_) {
      for (size_t i = 0; i < count; ++i) visit(i, rows_[positions == nullptr ? i : positions[i]]);
      return;
    }
    size_t part = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t position = positions == nullptr ? i : positions[i];
      while (part + 1 < parts_.size() && parts_[part + 1].first <= position) ++part;
      visit(i, parts_[part].gradient + (position - parts_[part].first) * width_);
    }
  }

 private:
  struct Part {
    size_t first;
    const float* gradient;
  };
  size_t width_ = 0;
  bool plain_ = true;
  std::vector<Part> parts_;
  std::vector<float> zeros_;
  std::vector<const float*> rows_;  // (N) unless plain
  std::vector<float> shares_;       // (N) unless plain
};

// Some keys of a batch, each with its distinct key.
struct KeysInBatch {
  // Positions of the keys in the batch, ascending; null: key i has position i.
  const uint32_t* positions = nullptr;  // (n)
  size_t count = 0;                     // n
  const int32_t* inverse = nullptr;     // (n) number of the distinct key
  size_t distinct = 0;                  // U
  const uint32_t* counts = nullptr;     // (U) how often each distinct key occurs
};

// Gradient rows ordered by distinct key, then by the order of the keys; each thread has its own
// memory.
class OrderedGradients {
 public:
  // The result is valid until the next call.
  RowGradients order(const KeysInBatch& keys, const KeyGradients& gradients);
  // For gradients that are summed already: distinct key u's is at sums + u * width. For rows
  // [first, last).
  RowGradients of_sums(const float* sums, size_t width, size_t first, size_t last);

 private:
  std::vector<const float*> rows_;  // (n)
  std::vector<float> shares_;       // (n)
  std::vector<uint32_t> begins_;    // (U + 1)
  std::vector<uint32_t> next_;      // (U)
};

// The calling thread's OrderedGradients.
OrderedGradients& ordered_gradients();

}  // namespace hotrow
