#include "core/ranks/owned_exchange.h"

#include <algorithm>

#include "core/kernels/float_mode.h"

namespace hotrow {

OwnedExchange::OwnedExchange(Table& table, size_t number)
    : TableExchange(table, number),
      sent_(ranks()),
      received_(ranks()),
      asked_(ranks()),
      lookups_(ranks()),
      gradients_(ranks()) {}

void OwnedExchange::collect(const std::vector<const Feature*>& features) {
  keys_.collect(*table_, features, false);
  for (size_t r = 0; r < ranks(); ++r) {
    sent_[r] = KeyMessage::of(keys_.lookups() + keys_.begin_of(r), places_of(r));
  }
}

void OwnedExchange::write_facts(int to, int64_t* facts) const {
  facts[0] = sent_[static_cast<size_t>(to)].keys;
  facts[1] = sent_[static_cast<size_t>(to)].larges;
}

void OwnedExchange::read_facts(int from, const int64_t* facts) {
  received_[static_cast<size_t>(from)] = {facts[0], facts[1]};
}

size_t OwnedExchange::bytes_to(Leg leg, int to) const {
  const size_t r = static_cast<size_t>(to);
  const size_t row = width() * sizeof(float);
  switch (leg) {
    case Leg::kKeys:
      return sent_[r].bytes();
    case Leg::kRows:
      return static_cast<size_t>(received_[r].keys) * row;
    case Leg::kGradients:
      return places_of(r) * row;
    default:
      return 0;
  }
}

size_t OwnedExchange::bytes_from(Leg leg, int from) const {
  const size_t r = static_cast<size_t>(from);
  const size_t row = width() * sizeof(float);
  switch (leg) {
    case Leg::kKeys:
      return received_[r].bytes();
    case Leg::kRows:
      return places_of(r) * row;
    case Leg::kGradients:
      return static_cast<size_t>(received_[r].keys) * row;
    default:
      return 0;
  }
}

void OwnedExchange::write_keys(int to, std::byte* message) const {
  const size_t r = static_cast<size_t>(to);
  const size_t first = keys_.begin_of(r);
  sent_[r].write(keys_.keys() + first, keys_.lookups() + first, message);
}

void OwnedExchange::take_keys(int from, const std::byte* message) {
  const size_t r = static_cast<size_t>(from);
  asked_[r] = received_[r].read_keys(message);
  lookups_[r].resize(static_cast<size_t>(received_[r].keys));
  received_[r].read_lookups(message, lookups_[r].data());
}

void OwnedExchange::look_up(std::byte* const* messages, OwnerCall* call) {
  for (size_t r = 0; r < ranks(); ++r) {
    call->add(number_, table_->name().c_str(), asked_[r], static_cast<size_t>(received_[r].keys),
              lookups_[r].data(), reinterpret_cast<float*>(messages[r]));
  }
}

void OwnedExchange::take_rows(const std::byte* const* messages) {
  rows_.resize(keys_.size());
  for (size_t r = 0; r < ranks(); ++r) {
    const float* rows = reinterpret_cast<const float*>(messages[r]);
    for (size_t place = keys_.begin_of(r); place < keys_.begin_of(r + 1); ++place) {
      rows_[place] = rows + (place - keys_.begin_of(r)) * width();
    }
  }
}

void OwnedExchange::pool(size_t f, const Feature& feature, size_t first, size_t last,
                         float* pooled) const {
  const IeeeFloatMode exact;
  pool_rows(feature.segments, first, last, rows_.data(), keys_.place_of(f), width(), pooled);
}

void OwnedExchange::write_gradients(const std::vector<const Feature*>& features,
                                    const std::vector<const float*>& gradients,
                                    std::byte* const* messages) {
  const RowGradients order = keys_.order_gradients(features, gradients, width());
  const Kernels& kernels = *table_->shape().kernels;
  const IeeeFloatMode exact;
  for (size_t r = 0; r < ranks(); ++r) {
    kernels.sum(order, width(), keys_.begin_of(r), keys_.begin_of(r + 1),
                reinterpret_cast<float*>(messages[r]));
  }
}

void OwnedExchange::take_gradients(const std::byte* const* messages) {
  for (size_t r = 0; r < ranks(); ++r) {
    gradients_[r] = reinterpret_cast<const float*>(messages[r]);
  }
}

void OwnedExchange::add_gradients(OwnerCall* call) {
  call->gradients.insert(call->gradients.end(), gradients_.begin(), gradients_.end());
}

}  // namespace hotrow
