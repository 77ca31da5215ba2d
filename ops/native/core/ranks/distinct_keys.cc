#include "core/ranks/distinct_keys.h"

#include <algorithm>
#include <cstring>

namespace hotrow {

void DistinctKeys::collect(const Table& table, const std::vector<const Feature*>& features,
                           bool alike) {
  const Sharding& sharding = table.sharding();
  const int64_t* keys = features.empty() ? nullptr : features[0]->keys;
  size_t count = 0;
  first_key_.clear();
  for (const Feature* feature : features) {
    check_segments(feature->segments, feature->name);
    table.check_keys(feature->keys, feature->segments.keys);
    first_key_.push_back(count);
    count += feature->segments.keys;
  }
  if (features.size() > 1) {
    all_.clear();
    for (const Feature* feature : features) {
      all_.insert(all_.end(), feature->keys, feature->keys + feature->segments.keys);
    }
    keys = all_.data();
  }
  unique_.run(keys, count);
  const size_t distinct = unique_.size();
  const size_t ranks = static_cast<size_t>(sharding.size());
  keys_.resize(distinct);
  lookups_.resize(distinct);
  place_of_.resize(count);
  begins_.assign(ranks + 1, 0);
  const int32_t* inverse = unique_.inverse();
  const bool one_owner = alike || sharding.scheme == Scheme::kTable;
  if (one_owner) {
    std::copy_n(unique_.keys(), distinct, keys_.begin());
    std::copy_n(unique_.counts(), distinct, lookups_.begin());
    std::copy_n(inverse, count, place_of_.begin());
    const size_t owner = alike ? 0 : static_cast<size_t>(sharding.owner);
    for (size_t r = owner + 1; r <= ranks; ++r) begins_[r] = distinct;
    return;
  }
  dispatch_.group(unique_.keys(), distinct, sharding.size(), sharding.hashed);
  std::copy_n(dispatch_.grouped().data(), distinct, keys_.begin());
  for (size_t r = 0; r < ranks; ++r) {
    begins_[r + 1] = begins_[r] + static_cast<size_t>(dispatch_.counts()[r]);
  }
  places_.resize(distinct);
  for (size_t place = 0; place < distinct; ++place) {
    const size_t u = static_cast<size_t>(dispatch_.order()[place]);
    places_[u] = static_cast<int32_t>(place);
    lookups_[place] = unique_.counts()[u];
  }
  for (size_t i = 0; i < count; ++i) place_of_[i] = places_[static_cast<size_t>(inverse[i])];
}

RowGradients DistinctKeys::order_gradients(const std::vector<const Feature*>& features,
                                           const std::vector<const float*>& gradients,
                                           size_t width) const {
  thread_local KeyGradients of_keys;
  of_keys.collect(features, gradients, width);
  // How often each distinct key occurs in the batch.
  thread_local std::vector<uint32_t> counts;
  counts.assign(size(), 0);
  for (int32_t place : place_of_) ++counts[static_cast<size_t>(place)];
  return ordered_gradients().order({nullptr, key_count(), place_of(), size(), counts.data()},
                                   of_keys);
}

namespace {

constexpr uint32_t kLarge = 255;

}  // namespace

KeyMessage KeyMessage::of(const uint32_t* lookups, size_t count) {
  KeyMessage message;
  message.keys = static_cast<int64_t>(count);
  bool single = true;
  for (size_t i = 0; i < count; ++i) {
    single = single && lookups[i] == 1;
    message.larges += lookups[i] >= kLarge;
  }
  if (single) message.larges = -1;
  return message;
}

size_t KeyMessage::bytes() const {
  const size_t n = static_cast<size_t>(keys);
  if (larges < 0) return n * sizeof(int64_t);
  const size_t bytes = n * (sizeof(int64_t) + 1) + static_cast<size_t>(larges) * sizeof(uint32_t);
  return (bytes + 7) / 8 * 8;
}

void KeyMessage::write(const int64_t* from, const uint32_t* lookups, std::byte* message) const {
  const size_t n = static_cast<size_t>(keys);
  if (n > 0) std::memcpy(message, from, n * sizeof(int64_t));
  if (larges < 0) return;
  std::byte* small = message + n * sizeof(int64_t);
  std::byte* large = small + n;
  for (size_t i = 0; i < n; ++i) {
    const bool is_large = lookups[i] >= kLarge;
    small[i] = static_cast<std::byte>(is_large ? kLarge : lookups[i]);
    if (!is_large) continue;
    std::memcpy(large, &lookups[i], sizeof(uint32_t));
    large += sizeof(uint32_t);
  }
  std::memset(large, 0, static_cast<size_t>(message + bytes() - large));
}

const int64_t* KeyMessage::read_keys(const std::byte* message) const {
  return reinterpret_cast<const int64_t*>(message);
}

void KeyMessage::read_lookups(const std::byte* message, uint32_t* lookups) const {
  const size_t n = static_cast<size_t>(keys);
  const std::byte* small = message + n * sizeof(int64_t);
  const std::byte* large = small + n;
  for (size_t i = 0; i < n; ++i) {
    lookups[i] = larges < 0 ? 1 : static_cast<uint32_t>(small[i]);
    if (lookups[i] != kLarge || larges < 0) continue;
    std::memcpy(&lookups[i], large, sizeof(uint32_t));
    large += sizeof(uint32_t);
  }
}

}  // namespace hotrow
