#include "core/ranks/replicated_exchange.h"

#include <algorithm>
#include <cstring>

#include "core/kernels/float_mode.h"

namespace hotrow {

ReplicatedExchange::ReplicatedExchange(Table& table, size_t number)
    : TableExchange(table, number),
      received_(ranks()),
      sent_rows_(ranks()),
      received_rows_(ranks()) {}

void ReplicatedExchange::collect(const std::vector<const Feature*>& features) {
  keys_.collect(*table_, features, true);
  sent_ = KeyMessage::of(keys_.lookups(), keys_.size());
}

void ReplicatedExchange::write_facts(int, int64_t* facts) const {
  facts[0] = sent_.keys;
  facts[1] = sent_.larges;
}

void ReplicatedExchange::read_facts(int from, const int64_t* facts) {
  received_[static_cast<size_t>(from)] = {facts[0], facts[1]};
  if (from + 1 < sharding().size()) return;
  first_of_.assign(1, 0);
  for (const KeyMessage& message : received_) {
    first_of_.push_back(first_of_.back() + static_cast<size_t>(message.keys));
  }
  all_keys_.resize(first_of_.back());
  all_lookups_.resize(first_of_.back());
}

size_t ReplicatedExchange::bytes_to(Leg leg, int to) const {
  const size_t row = width() * sizeof(float);
  switch (leg) {
    case Leg::kKeys:
      return sent_.bytes();
    case Leg::kGradients:
      return sent_rows_[static_cast<size_t>(to)] * row;
    case Leg::kSums:
      return (slice(own() + 1) - slice(own())) * row;
    default:
      return 0;
  }
}

size_t ReplicatedExchange::bytes_from(Leg leg, int from) const {
  const size_t r = static_cast<size_t>(from);
  const size_t row = width() * sizeof(float);
  switch (leg) {
    case Leg::kKeys:
      return received_[r].bytes();
    case Leg::kGradients:
      return received_rows_[r] * row;
    case Leg::kSums:
      return (slice(r + 1) - slice(r)) * row;
    default:
      return 0;
  }
}

void ReplicatedExchange::write_keys(int, std::byte* message) const {
  sent_.write(keys_.keys(), keys_.lookups(), message);
}

void ReplicatedExchange::take_keys(int from, const std::byte* message) {
  const size_t r = static_cast<size_t>(from);
  const size_t count = static_cast<size_t>(received_[r].keys);
  if (count == 0) return;
  std::memcpy(all_keys_.data() + first_of_[r], message, count * sizeof(int64_t));
  received_[r].read_lookups(message, all_lookups_.data() + first_of_[r]);
}

size_t ReplicatedExchange::slice_of(int32_t row) const {
  // slice(r) <= row < slice(r + 1); slices are as equal as possible.
  size_t r = static_cast<size_t>(row) * ranks() / union_.size();
  while (slice(r + 1) <= static_cast<size_t>(row)) ++r;
  while (slice(r) > static_cast<size_t>(row)) --r;
  return r;
}

void ReplicatedExchange::count_rows() {
  const int32_t* row_of = union_.inverse();
  std::fill(sent_rows_.begin(), sent_rows_.end(), 0);
  for (size_t i = first_of_[own()]; i < first_of_[own() + 1]; ++i) {
    ++sent_rows_[slice_of(row_of[i])];
  }
  const int32_t first = static_cast<int32_t>(slice(own()));
  const int32_t last = static_cast<int32_t>(slice(own() + 1));
  for (size_t r = 0; r < ranks(); ++r) {
    received_rows_[r] =
        static_cast<size_t>(std::count_if(row_of + first_of_[r], row_of + first_of_[r + 1],
                                          [&](int32_t row) { return row >= first && row < last; }));
  }
}

void ReplicatedExchange::list_received(OwnerCall* call) {
  for (size_t r = 0; r < ranks(); ++r) {
    const size_t first = first_of_[r];
    call->add(number_, table_->name().c_str(), all_keys_.data() + first, first_of_[r + 1] - first,
              all_lookups_.data() + first, nullptr);
  }
}

void ReplicatedExchange::look_up(std::byte* const*, OwnerCall* call) {
  union_.run(all_keys_.data(), all_keys_.size());
  lookups_.assign(union_.size(), 0);
  for (size_t i = 0; i < all_keys_.size(); ++i) {
    lookups_[static_cast<size_t>(union_.inverse()[i])] += all_lookups_[i];
  }
  count_rows();
  rows_.resize(union_.size() * width());
  call->add(number_, table_->name().c_str(), union_.keys(), union_.size(), lookups_.data(),
            rows_.data());
  row_of_.resize(keys_.size());
  for (size_t u = 0; u < keys_.size(); ++u) {
    row_of_[u] =
        rows_.data() + static_cast<size_t>(union_.inverse()[first_of_[own()] + u]) * width();
  }
}

void ReplicatedExchange::pool(size_t f, const Feature& feature, size_t first, size_t last,
                              float* pooled) const {
  const IeeeFloatMode exact;
  pool_rows(feature.segments, first, last, row_of_.data(), keys_.place_of(f), width(), pooled);
}

void ReplicatedExchange::write_gradients(const std::vector<const Feature*>& features,
                                         const std::vector<const float*>& gradients,
                                         std::byte* const* messages) {
  thread_local std::vector<float> sums;
  sums.resize(keys_.size() * width());
  {
    const IeeeFloatMode exact;
    table_->shape().kernels->sum(keys_.order_gradients(features, gradients, width()), width(), 0,
                                 keys_.size(), sums.data());
  }
  std::vector<float*> next;
  for (size_t r = 0; r < ranks(); ++r) next.push_back(reinterpret_cast<float*>(messages[r]));
  const int32_t* row_of = union_.inverse() + first_of_[own()];
  for (size_t u = 0; u < keys_.size(); ++u) {
    float*& to = next[slice_of(row_of[u])];
    std::memcpy(to, sums.data() + u * width(), width() * sizeof(float));
    to += width();
  }
}

void ReplicatedExchange::take_gradients(const std::byte* const* messages) {
  const IeeeFloatMode exact;
  const size_t first = slice(own()), last = slice(own() + 1);
  sums_.resize(union_.size() * width());
  std::fill(sums_.begin() + static_cast<ptrdiff_t>(first * width()),
            sums_.begin() + static_cast<ptrdiff_t>(last * width()), 0.0f);
  for (size_t r = 0; r < ranks(); ++r) {
    const float* from = reinterpret_cast<const float*>(messages[r]);
    for (size_t i = first_of_[r]; i < first_of_[r + 1]; ++i) {
      const size_t row = static_cast<size_t>(union_.inverse()[i]);
      if (row < first || row >= last) continue;
      float* sum = sums_.data() + row * width();
      for (size_t j = 0; j < width(); ++j) sum[j] += from[j];
      from += width();
    }
  }
}

void ReplicatedExchange::write_sums(int, std::byte* message) {
  const size_t first = slice(own()) * width(), last = slice(own() + 1) * width();
  if (last > first) std::memcpy(message, sums_.data() + first, (last - first) * sizeof(float));
}

void ReplicatedExchange::take_sums(const std::byte* const* messages) {
  for (size_t r = 0; r < ranks(); ++r) {
    const size_t first = slice(r) * width(), last = slice(r + 1) * width();
    if (r == own() || last == first) continue;
    std::memcpy(sums_.data() + first, messages[r], (last - first) * sizeof(float));
  }
}

void ReplicatedExchange::add_gradients(OwnerCall* call) { call->gradients.push_back(sums_.data()); }

}  // namespace hotrow
