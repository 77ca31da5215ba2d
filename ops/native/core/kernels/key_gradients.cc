#include "core/kernels/key_gradients.h"

namespace hotrow {

void KeyGradients::collect(const std::vector<const Feature*>& features,
                           const std::vector<const float*>& gradients, size_t width) {
  width_ = width;
  parts_.clear();
  plain_ = true;
  size_t first = 0;
  for (size_t f = 0; f < features.size(); ++f) {
    const Segments& segments = features[f]->segments;
    parts_.push_back({first, gradients[f]});
    plain_ = plain_ && segments.plain();
    first += segments.keys;
  }
  if (plain_) return;
  zeros_.assign(width, 0.0f);
  rows_.resize(first);
  shares_.resize(first);
  first = 0;
  for (size_t f = 0; f < features.size(); ++f) {
    const Segments& segments = features[f]->segments;
    for (size_t b = 0; b < segments.outputs(); ++b) {
      const float* gradient = gradients[f] + b * width;
      if (segments.plain()) {
        rows_[first + b] = gradient;
        shares_[first + b] = 1.0f;
        continue;
      }
      const float divisor = divisor_of(segments, b);
      for (size_t i = segments.begin_of(b); i < segments.begin_of(b + 1); ++i) {
        rows_[first + i] = divisor == 0.0f ? zeros_.data() : gradient;
        shares_[first + i] = divisor == 0.0f ? 0.0f : segments.weight(i) / divisor;
      }
    }
    first += segments.keys;
  }
}

RowGradients OrderedGradients::order(const KeysInBatch& keys, const KeyGradients& gradients) {
  begins_.resize(keys.distinct + 1);
  next_.resize(keys.distinct);
  uint32_t total = 0;
  for (size_t u = 0; u < keys.distinct; ++u) {
    begins_[u] = next_[u] = total;
    total += keys.counts[u];
  }
  begins_[keys.distinct] = total;
  rows_.resize(total);
  if (gradients.plain()) {
    gradients.each(keys.positions, keys.count, [&](size_t i, const float* row) {
      rows_[next_[static_cast<size_t>(keys.inverse[i])]++] = row;
    });
    return {rows_.data(), nullptr, begins_.data()};
  }
  shares_.resize(total);
  gradients.each(keys.positions, keys.count, [&](size_t i, const float* row) {
    const uint32_t place = next_[static_cast<size_t>(keys.inverse[i])]++;
    rows_[place] = row;
    shares_[place] = gradients.share(keys.positions == nullptr ? i : keys.positions[i]);
  });
  return {rows_.data(), shares_.data(), begins_.data()};
}

RowGradients OrderedGradients::of_sums(const float* sums, size_t width, size_t first, size_t last) {
  if (rows_.size() < last) rows_.resize(last);
  if (begins_.size() < last + 1) begins_.resize(last + 1);
  for (size_t u = first; u < last; ++u) {
    rows_[u] = sums + u * width;
    begins_[u] = static_cast<uint32_t>(u);
  }
  begins_[last] = static_cast<uint32_t>(last);
  return {rows_.data(), nullptr, begins_.data()};
}

OrderedGradients& ordered_gradients() {
  thread_local OrderedGradients o;
  return o;
}

}  // namespace hotrow
