#include "core/ranks/shared_batch_exchange.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/kernels/float_mode.h"

namespace hotrow {

SharedBatchExchange::SharedBatchExchange(Table& table, size_t number)
    : TableExchange(table, number), batches_(ranks()), pooled_(ranks()), gradients_(ranks()) {}

void SharedBatchExchange::collect(const std::vector<const Feature*>& features) {
  first_output_.assign(1, 0);
  for (const Feature* feature : features) {
    check_segments(feature->segments, feature->name);
    table_->check_keys(feature->keys, feature->segments.keys);
    first_output_.push_back(first_output_.back() + feature->segments.outputs());
  }
  own_.collect(features);
}

void SharedBatchExchange::write_facts(int, int64_t* facts) const { own_.write_facts(facts); }

void SharedBatchExchange::read_facts(int from, const int64_t* facts) {
  batches_[static_cast<size_t>(from)].read_facts(own_.features(), facts);
}

size_t SharedBatchExchange::bytes_to(Leg leg, int to) const {
  const size_t r = static_cast<size_t>(to);
  switch (leg) {
    case Leg::kKeys:
      return own_.bytes();
    case Leg::kRows:
      return batches_[r].outputs() * columns(own()) * sizeof(float);
    case Leg::kGradients:
      return own_.outputs() * columns(r) * sizeof(float);
    default:
      return 0;
  }
}

size_t SharedBatchExchange::bytes_from(Leg leg, int from) const {
  const size_t r = static_cast<size_t>(from);
  switch (leg) {
    case Leg::kKeys:
      return batches_[r].bytes();
    case Leg::kRows:
      return own_.outputs() * columns(r) * sizeof(float);
    case Leg::kGradients:
      return batches_[r].outputs() * columns(own()) * sizeof(float);
    default:
      return 0;
  }
}

void SharedBatchExchange::write_keys(int, std::byte* message) const { own_.write(message); }

void SharedBatchExchange::take_keys(int from, const std::byte* message) {
  batches_[static_cast<size_t>(from)].take(message);
}

void SharedBatchExchange::take_rows(const std::byte* const* messages) {
  for (size_t r = 0; r < ranks(); ++r) pooled_[r] = reinterpret_cast<const float*>(messages[r]);
}

void SharedBatchExchange::take_gradients(const std::byte* const* messages) {
  for (size_t r = 0; r < ranks(); ++r) gradients_[r] = reinterpret_cast<const float*>(messages[r]);
}

void SharedBatchExchange::add_gradients(OwnerCall* call) {
  // In the order of the features of `look_up`: by feature, then by rank. One process has the same
  // order.
  std::vector<const float*> next = gradients_;
  for (size_t f = 0; f < own_.features().size(); ++f) {
    for (size_t r = 0; r < ranks(); ++r) {
      call->gradients.push_back(next[r]);
      next[r] += batches_[r].features()[f].segments.outputs() * columns(own());
    }
  }
}

// --- kColumn ------------------------------------------------------------------------------------

void ColumnExchange::look_up(std::byte* const* messages, OwnerCall* call) {
  std::vector<float*> next;
  for (size_t r = 0; r < ranks(); ++r) next.push_back(reinterpret_cast<float*>(messages[r]));
  for (size_t f = 0; f < own_.features().size(); ++f) {
    for (size_t r = 0; r < ranks(); ++r) {
      const Feature& feature = batches_[r].features()[f];
      call->features.push_back(feature);
      call->table_of.push_back(number_);
      call->outputs.push_back(next[r]);
      next[r] += feature.segments.outputs() * columns(own());
    }
  }
}

void ColumnExchange::pool(size_t f, const Feature&, size_t first, size_t last,
                          float* pooled) const {
  for (size_t r = 0; r < ranks(); ++r) {
    const size_t count = columns(r);
    const float* from = pooled_[r] + (first_output_[f] + first) * count;
    float* to = pooled + first * width() + sharding().first_column(static_cast<int>(r));
    for (size_t b = first; b < last; ++b, from += count, to += width()) {
      std::memcpy(to, from, count * sizeof(float));
    }
  }
}

// A gradient that is not finite gets a NaN among the columns of each rank, so that all ranks leave
// the same rows as they were.
void ColumnExchange::write_gradients(const std::vector<const Feature*>& features,
                                     const std::vector<const float*>& gradients,
                                     std::byte* const* messages) {
  const Kernels& kernels = *table_->shape().kernels;
  std::vector<bool> spoiled;  // of each output
  for (size_t f = 0; f < features.size(); ++f) {
    const size_t outputs = features[f]->segments.outputs();
    for (size_t b = 0; b < outputs; ++b) {
      const double squares = kernels.squares(gradients[f] + b * width(), width());
      spoiled.push_back(!std::isfinite(squares));
    }
  }
  for (size_t r = 0; r < ranks(); ++r) {
    const size_t count = columns(r);
    float* to = reinterpret_cast<float*>(messages[r]);
    size_t output = 0;
    for (size_t f = 0; f < features.size(); ++f) {
      const float* from = gradients[f] + sharding().first_column(static_cast<int>(r));
      const size_t outputs = features[f]->segments.outputs();
      for (size_t b = 0; b < outputs; ++b, from += width(), to += count) {
        std::memcpy(to, from, count * sizeof(float));
        if (spoiled[output++] && count > 0) to[0] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }
}

// --- kRowBroadcast ------------------------------------------------------------------------------

bool PartialSumExchange::weighted(const Segments& segments) {
  return !segments.plain() && (segments.weights != nullptr || segments.combiner != Combiner::kSum);
}

Feature PartialSumExchange::part_of(const Feature& feature, OwnedPart* part) const {
  const Segments& segments = feature.segments;
  const bool divides = weighted(segments);
  part->keys.clear();
  part->row_splits.assign(1, 0);
  part->weights.clear();
  const size_t outputs = segments.outputs();
  for (size_t b = 0; b < outputs; ++b) {
    const bool plain = segments.plain();
    const size_t first = plain ? b : segments.begin_of(b);
    const size_t last = plain ? b + 1 : segments.begin_of(b + 1);
    const float divisor = divides ? divisor_of(segments, b) : 1.0f;
    for (size_t i = first; i < last; ++i) {
      if (sharding().owner_of(feature.keys[i]) != sharding().rank()) continue;
      part->keys.push_back(feature.keys[i]);
      if (divides) {
        part->weights.push_back(divisor == 0.0f ? 0.0f : segments.weight(i) / divisor);
      }
    }
    part->row_splits.push_back(static_cast<int64_t>(part->keys.size()));
  }
  Feature owned;
  owned.name = feature.name;
  owned.keys = part->keys.data();
  owned.segments.combiner = Combiner::kSum;
  owned.segments.keys = part->keys.size();
  owned.segments.samples = outputs;
  owned.segments.row_splits = part->row_splits.data();
  owned.segments.weights = divides ? part->weights.data() : nullptr;
  return owned;
}

void PartialSumExchange::look_up(std::byte* const* messages, OwnerCall* call) {
  const size_t features = own_.features().size();
  parts_.resize(features * ranks());
  std::vector<float*> next;
  for (size_t r = 0; r < ranks(); ++r) next.push_back(reinterpret_cast<float*>(messages[r]));
  for (size_t f = 0; f < features; ++f) {
    for (size_t r = 0; r < ranks(); ++r) {
      call->features.push_back(part_of(batches_[r].features()[f], &parts_[f * ranks() + r]));
      call->table_of.push_back(number_);
      call->outputs.push_back(next[r]);
      next[r] += call->features.back().segments.samples * width();
    }
  }
}

void PartialSumExchange::pool(size_t f, const Feature&, size_t first, size_t last,
                              float* pooled) const {
  const IeeeFloatMode exact;
  const size_t count = (last - first) * width();
  float* const to = pooled + first * width();
  for (size_t r = 0; r < ranks(); ++r) {
    const float* from = pooled_[r] + (first_output_[f] + first) * width();
    if (r == 0) {
      std::memcpy(to, from, count * sizeof(float));
      continue;
    }
    for (size_t i = 0; i < count; ++i) to[i] += from[i];
  }
}

void PartialSumExchange::write_gradients(const std::vector<const Feature*>& features,
                                         const std::vector<const float*>& gradients,
                                         std::byte* const* messages) {
  for (size_t r = 0; r < ranks(); ++r) {
    float* to = reinterpret_cast<float*>(messages[r]);
    for (size_t f = 0; f < features.size(); ++f) {
      const size_t count = features[f]->segments.outputs() * width();
      if (count > 0) std::memcpy(to, gradients[f], count * sizeof(float));
      to += count;
    }
  }
}

}  // namespace hotrow
