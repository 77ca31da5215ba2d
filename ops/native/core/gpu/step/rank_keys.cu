#include <algorithm>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/message_rows.h"
#include "core/gpu/kernels/pooling.h"
#include "core/gpu/kernels/update.h"
#include "core/gpu/step/rank_keys.h"

namespace hotrow {
namespace {

constexpr size_t kKeyBytes = sizeof(int64_t) + sizeof(uint32_t);

}  // namespace

// --- input dispatcher ----------------------------------------------------------------------------

void DeviceRankKeys::collect(const DeviceRankContext& here) {
  const size_t tables = here.tables(), groups = tables * here.ranks;
  sent_.assign(groups, 0);
  received_.assign(groups, 0);
  any_ = false;
  for (size_t t = 0; t < tables; ++t) any_ = any_ || !here.shares_batches(t);
  if (!any_) return;
  call_ = here.part(false);
  keys_ = KeyPlaces::of(call_);
  const size_t count = keys_.count();
  all_ = CallKeys::collect(call_, keys_, &described_, here.stream);
  take_from(memory_, [&](DeviceArena& arena) {
    unique_ = DeviceUnique::take(arena, count, tables);
    owners_ = DeviceOwners::take(arena, count, groups);
    placed_ = DevicePlaced::take(arena, count);
    groups_ = arena.take<DeviceKeyGroup>(groups);
  });
  std::vector<DeviceOwnerRule> rules;
  for (size_t t = 0; t < tables; ++t) {
    const Sharding& sharding = here.sharding(t);
    DeviceOwnerRule rule{-1, sharding.hashed ? 1u : 0u};
    if (sharding.scheme == Scheme::kTable) rule.owner = sharding.owner;
    if (here.is_replicated(t)) rule.owner = static_cast<int32_t>(here.own);
    rules.push_back(rule);
  }
  const size_t bytes =
      std::max(device_unique_scratch(count), device_owners_scratch(count, tables, here.ranks));
  void* const scratch = here.scratch(bytes);
  device_unique({all_.keys, count, all_.table_begins, tables}, unique_, scratch, bytes,
                here.stream);
  device_owners(unique_, count, tables, static_cast<int32_t>(here.ranks), rules.data(), owners_,
                scratch, bytes, here.stream);
}

void DeviceRankKeys::take_answer(const DeviceRankContext&, DeviceArena& arena) {
  if (!any_) return;
  answer_.wrong = arena.take<WrongKeys>(1);
  answer_.key = arena.take<int64_t>(1);
  answer_.group_first = arena.take<uint32_t>(sent_.size() + 1);
}

void DeviceRankKeys::copy_answer(const DeviceRankContext& here) {
  if (!any_) return;
  copy_async(answer_.wrong, all_.wrong, 1, here.stream);
  copy_async(answer_.group_first, owners_.group_first, sent_.size() + 1, here.stream);
}

void DeviceRankKeys::check(const DeviceRankContext& here) {
  if (!any_) return;
  here.refuse_wrong(call_, keys_, all_, *answer_.wrong, answer_.key);
  for (size_t t = 0; t < here.tables(); ++t) {
    for (size_t r = 0; r < here.ranks; ++r) {
      const size_t group = here.group(t, here.is_replicated(t) ? here.own : r);
      sent_[here.group(t, r)] = answer_.group_first[group + 1] - answer_.group_first[group];
    }
  }
}

void DeviceRankKeys::set_sent(const DeviceRankContext& here, const RankPass& prefetched) {
  for (size_t t = 0; t < here.tables(); ++t) {
    for (size_t r = 0; r < here.ranks; ++r) {
      sent_[here.group(t, r)] = prefetched.tables[t]->distinct_keys_to(static_cast<int>(r));
    }
  }
}

void DeviceRankKeys::take_received(const DeviceRankContext& here, size_t table,
                                   const Feature* received) {
  for (size_t r = 0; r < here.ranks; ++r) {
    received_[here.group(table, r)] = received[r].segments.keys;
  }
}

size_t DeviceRankKeys::home_bytes(const DeviceRankContext& here, Leg leg, size_t table,
                                  size_t rank) const {
  const size_t keys = sent_[here.group(table, rank)];
  if (leg == Leg::kKeys) return keys * kKeyBytes;
  if (leg == Leg::kRows && here.is_replicated(table)) return 0;
  return keys * here.width(table) * sizeof(float);
}

size_t DeviceRankKeys::owner_bytes(const DeviceRankContext& here, Leg leg, size_t table,
                                   size_t rank) const {
  const size_t keys = received_[here.group(table, rank)];
  if (leg == Leg::kKeys) return keys * kKeyBytes;
  if (leg == Leg::kRows && here.is_replicated(table)) return 0;
  return keys * here.width(table) * sizeof(float);
}

void DeviceRankKeys::make_room_for_replicas(const DeviceRankContext& here) {
  replica_of_.assign(here.tables(), nullptr);
  take_from(replicas_, [&](DeviceArena& arena) {
    for (size_t t = 0; t < here.tables(); ++t) {
      if (!here.is_replicated(t)) continue;
      replica_of_[t] = arena.take<float>(sent_[here.group(t, here.own)] * here.width(t));
    }
  });
}

void DeviceRankKeys::place_keys(const DeviceRankContext& here, bool prefetched) {
  if (!any_) return;
  make_room_for_replicas(here);
  const auto& to = here.messages.keys_sent.parts;
  std::vector<DeviceKeyGroup> groups;
  std::vector<DeviceRowCopy> copies;
  for (size_t t = 0; t < here.tables(); ++t) {
    for (size_t r = 0; r < here.ranks; ++r) {
      const size_t count = sent_[here.group(t, r)];
      auto* const keys = prefetched ? nullptr : reinterpret_cast<int64_t*>(to[t][r]);
      auto* rows = reinterpret_cast<float*>(here.messages.home_rows.parts[t][r]);
      if (here.is_replicated(t)) {
        rows = replica_of_[t];
        if (r != here.own && !prefetched) {
          copies.push_back(
              DeviceRowCopy::of(to[t][here.own], to[t][r], count * kKeyBytes / sizeof(uint32_t)));
        }
      }
      auto* const lookups = prefetched ? nullptr : reinterpret_cast<uint32_t*>(keys + count);
      groups.push_back({keys, lookups, rows, here.width(t)});
    }
  }
  upload(groups_, groups.data(), groups.size(), here.stream);
  device_place_keys(unique_, keys_.count(), owners_, groups_, groups.size(), placed_, here.stream);
  const size_t bytes = device_copy_rows_scratch(copies.size());
  device_copy_rows(copies.data(), copies.size(), here.scratch(bytes), bytes, here.stream);
}

// --- at the owner --------------------------------------------------------------------------------

void DeviceRankKeys::add_features(const DeviceRankContext& here, size_t table,
                                  OwnerCall* owner) const {
  for (size_t r = 0; r < here.ranks; ++r) {
    const size_t count = received_[here.group(table, r)];
    const auto* const keys =
        reinterpret_cast<const int64_t*>(here.messages.keys_received.parts[table][r]);
    Feature feature;
    feature.name = here.call.tables[table]->name().c_str();
    feature.keys = keys;
    feature.segments.keys = feature.segments.samples = count;
    feature.counts = reinterpret_cast<const uint32_t*>(keys + count);
    owner->features.push_back(feature);
    owner->table_of.push_back(table);
  }
}

void DeviceRankKeys::add_outputs(const DeviceRankContext& here, size_t table,
                                 OwnerCall* owner) const {
  for (size_t r = 0; r < here.ranks; ++r) {
    auto* rows = reinterpret_cast<float*>(here.messages.owner_rows.parts[table][r]);
    if (here.is_replicated(table)) rows = r == here.own ? replica_of_[table] : nullptr;
    owner->outputs.push_back(rows);
  }
}

void DeviceRankKeys::add_gradients(const DeviceRankContext& here, size_t table,
                                   OwnerCall* owner) const {
  for (size_t r = 0; r < here.ranks; ++r) {
    owner->gradients.push_back(
        reinterpret_cast<const float*>(here.messages.owner_rows.parts[table][r]));
  }
}

// --- output dispatcher, and the same way back ----------------------------------------------------

std::vector<DeviceFeature> DeviceRankKeys::features(const DeviceRankContext& here) const {
  std::vector<DeviceFeature> features;
  for (size_t f = 0; f < call_.features.size(); ++f) {
    DeviceFeature feature;
    feature.segments = call_.features[f].segments;
    feature.first_key = keys_.first_key[f];
    feature.width = here.width(call_.table_of[f]);
    feature.bare = true;
    features.push_back(feature);
  }
  return features;
}

void DeviceRankKeys::pool(const DeviceRankContext& here, const std::vector<float*>& pooled) const {
  if (!any_) return;
  std::vector<DeviceFeature> all = features(here);
  for (size_t f = 0; f < all.size(); ++f) all[f].pooled = pooled[f];
  const size_t bytes = device_pool_scratch(all.size());
  device_pool(all.data(), all.size(), reinterpret_cast<const std::byte* const*>(placed_.rows),
              placed_.inverse, here.scratch(bytes), bytes, here.stream);
}

void DeviceRankKeys::write_gradients(const DeviceRankContext& here,
                                     const std::vector<const float*>& gradients) {
  if (!any_) return;
  const size_t count = keys_.count(), tables = here.tables();
  const std::vector<DeviceFeature> all = features(here);
  const bool plain = std::all_of(all.begin(), all.end(), [](const DeviceFeature& feature) {
    return feature.segments.plain();
  });
  DeviceTerms terms;
  DevicePositions positions;
  std::vector<float*> sums_of(tables, nullptr);  // of replicated tables
  take_from(here.memory.terms, [&](DeviceArena& arena) {
    terms = DeviceTerms::take(arena, count, !plain);
    positions = DevicePositions::take(arena, count);
    for (size_t t = 0; t < tables; ++t) {
      if (!here.is_replicated(t)) continue;
      sums_of[t] = arena.take<float>(sent_[here.group(t, here.own)] * here.width(t));
    }
  });
  // Sums each group as if it were a table, into the message to its owner.
  const auto& to = here.messages.home_rows.parts;
  std::vector<DeviceSums> sums;
  std::vector<DeviceRowCopy> copies;
  size_t most_width = 0;
  for (size_t t = 0; t < tables; ++t) {
    const size_t width = here.width(t);
    most_width = std::max(most_width, width);
    for (size_t r = 0; r < here.ranks; ++r) {
      float* const rows = reinterpret_cast<float*>(to[t][r]);
      sums.push_back({width, here.is_replicated(t) ? sums_of[t] : rows});
      if (!here.is_replicated(t)) continue;
      copies.push_back(DeviceRowCopy::of(sums_of[t], rows, sent_[here.group(t, r)] * width));
      copies.back().sums = true;  // as the ranks in RAM, which add to zeros
    }
  }
  DeviceUnique placed = unique_;
  placed.counts = placed_.counts;
  placed.inverse = placed_.inverse;
  const size_t bytes = std::max({device_pool_scratch(all.size()), device_positions_scratch(count),
                                 device_sum_scratch(count, sums.size(), most_width),
                                 device_copy_rows_scratch(copies.size())});
  void* const scratch = here.scratch(bytes);
  device_terms(all.data(), gradients.data(), all.size(), terms, scratch, bytes, here.stream);
  device_positions(placed, count, positions, scratch, bytes, here.stream);
  device_sum(sums.data(), sums.size(), owners_.group_first,
             {terms.rows, terms.shares, positions.begins, positions.order, count}, scratch, bytes,
             here.stream);
  device_copy_rows(copies.data(), copies.size(), scratch, bytes, here.stream);
}

}  // namespace hotrow
