#include <algorithm>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/owner_parts.h"
#include "core/gpu/step/rank_batches.h"

namespace hotrow {
namespace {

// Whether the weights of a feature's parts are more than 1.
bool weighted(const Segments& segments) {
  return !segments.plain() && (segments.weights != nullptr || segments.combiner != Combiner::kSum);
}

// A part has its row splits and weights in its message alone; BatchMessage asks whether it has any.
constexpr int64_t kSplits = 0;
constexpr float kWeight = 1.0f;

// Where a feature lies in a message, to write it.
template <typename T>
T* writable(const T* at) {
  return const_cast<T*>(at);
}

// The keys of a feature that one rank owns: their weighted sums, with the weights divided.
Feature part_of(const Feature& feature, size_t keys) {
  Feature part = feature;
  part.segments.combiner = Combiner::kSum;
  part.segments.keys = keys;
  part.segments.samples = feature.segments.outputs();
  part.segments.row_splits = &kSplits;
  part.segments.weights = weighted(feature.segments) ? &kWeight : nullptr;
  return part;
}

}  // namespace

// --- input dispatcher ----------------------------------------------------------------------------

void DeviceRankBatches::collect(const DeviceRankContext& here, bool prefetched) {
  any_ = parts_ = false;
  for (size_t t = 0; t < here.tables(); ++t) {
    any_ = any_ || here.shares_batches(t);
    parts_ = parts_ || is_parted(here, t);
  }
  if (!any_) return;
  call_ = here.part(true);
  places_ = call_.features_by_table();
  if (prefetched) return;
  keys_ = KeyPlaces::of(call_);
  all_ = CallKeys::collect(call_, keys_, &described_, here.stream);
  if (parts_) part_keys(here);
}

// Groups the keys by feature and owner.
void DeviceRankBatches::part_keys(const DeviceRankContext& here) {
  const size_t count = keys_.count(), features = call_.features.size();
  std::vector<DeviceOwnerRule> rules;
  std::vector<DeviceFeature> divided(features);
  bool any_weighted = false;
  for (size_t t = 0; t < here.tables(); ++t) {
    for (const size_t f : places_[t]) {
      DeviceOwnerRule rule{0, here.sharding(t).hashed ? 1u : 0u};
      if (is_parted(here, t)) {
        rule.owner = -1;
        any_weighted = any_weighted || weighted(call_.features[f].segments);
      }
      rules.push_back(rule);
      divided[f].segments = call_.features[f].segments;
      divided[f].first_key = keys_.first_key[f];
      divided[f].width = here.width(t);
    }
  }
  take_from(memory_, [&](DeviceArena& arena) {
    owners_ = DeviceOwners::take(arena, count, features * here.ranks);
    shares_ = any_weighted ? DeviceTerms::take(arena, count, true) : DeviceTerms();
    weights_ = any_weighted ? arena.take<float>(count) : nullptr;
  });
  DeviceUnique keys;
  keys.keys = all_.keys;
  keys.table_first = writable(all_.pieces.begins);
  const size_t bytes =
      std::max(device_owners_scratch(count, features, here.ranks), device_pool_scratch(features));
  void* const scratch = here.scratch(bytes);
  device_owners(keys, count, features, static_cast<int32_t>(here.ranks), rules.data(), owners_,
                scratch, bytes, here.stream);
  if (weights_ == nullptr) return;
  // The shares of keys in their outputs are the divided weights; there are no gradients yet.
  const std::vector<const float*> none(features, nullptr);
  device_terms(divided.data(), none.data(), features, shares_, scratch, bytes, here.stream);
  device_order_weights(owners_, shares_.shares, count, weights_, here.stream);
}

void DeviceRankBatches::take_answer(const DeviceRankContext& here, DeviceArena& arena) {
  if (!any_) return;
  answer_.wrong = arena.take<WrongKeys>(1);
  answer_.key = arena.take<int64_t>(1);
  answer_.group_first = arena.take<uint32_t>(call_.features.size() * here.ranks + 1);
}

void DeviceRankBatches::copy_answer(const DeviceRankContext& here) {
  if (!any_) return;
  copy_async(answer_.wrong, all_.wrong, 1, here.stream);
  if (!parts_) return;
  copy_async(answer_.group_first, owners_.group_first, call_.features.size() * here.ranks + 1,
             here.stream);
}

void DeviceRankBatches::check(const DeviceRankContext& here) {
  if (!any_) return;
  here.refuse_wrong(call_, keys_, all_, *answer_.wrong, answer_.key);
  set_sent(here, answer_.group_first);
}

void DeviceRankBatches::set_sent(const DeviceRankContext& here, const uint32_t* group_first) {
  if (!any_) return;
  sent_.assign(here.tables() * here.ranks, {});
  received_.assign(here.tables() * here.ranks, {});
  size_t piece = 0;
  for (size_t t = 0; t < here.tables(); ++t) {
    for (size_t r = 0; r < here.ranks; ++r) {
      std::vector<Feature> parts;
      for (size_t i = 0; i < places_[t].size() && here.shares_batches(t); ++i) {
        const Feature& feature = call_.features[places_[t][i]];
        size_t keys = 0;
        if (is_parted(here, t) && group_first != nullptr) {
          const uint32_t* const first = group_first + (piece + i) * here.ranks + r;
          keys = first[1] - first[0];
        }
        parts.push_back(is_parted(here, t) ? part_of(feature, keys) : feature);
      }
      std::vector<const Feature*> pointers;
      for (const Feature& part : parts) pointers.push_back(&part);
      sent_[here.group(t, r)].collect(pointers);
    }
    piece += places_[t].size();
  }
}

void DeviceRankBatches::take_received(const DeviceRankContext& here, size_t table,
                                      const Feature* received) {
  for (size_t r = 0; r < here.ranks; ++r) {
    std::vector<const Feature*> of_rank;
    for (size_t i = 0; i < places_[table].size(); ++i) {
      of_rank.push_back(received + i * here.ranks + r);
    }
    received_[here.group(table, r)].collect(of_rank);
  }
}

void DeviceRankBatches::write_facts(const DeviceRankContext& here, size_t table, size_t to,
                                    int64_t* facts) const {
  sent_[here.group(table, to)].write_facts(facts);
}

void DeviceRankBatches::read_facts(const DeviceRankContext& here, size_t table, size_t from,
                                   const int64_t* facts) {
  const std::vector<Feature>& like = sent_[here.group(table, here.own)].features();
  received_[here.group(table, from)].read_facts(like, facts);
}

size_t DeviceRankBatches::home_bytes(const DeviceRankContext& here, Leg leg, size_t table,
                                     size_t rank) const {
  const BatchMessage& message = sent_[here.group(table, rank)];
  return leg == Leg::kKeys ? message.bytes()
                           : message.outputs() * columns(here, table, rank) * sizeof(float);
}

size_t DeviceRankBatches::owner_bytes(const DeviceRankContext& here, Leg leg, size_t table,
                                      size_t rank) const {
  const BatchMessage& message = received_[here.group(table, rank)];
  return leg == Leg::kKeys ? message.bytes()
                           : message.outputs() * columns(here, table, here.own) * sizeof(float);
}

void DeviceRankBatches::write_keys(const DeviceRankContext& here) {
  if (!any_) return;
  constexpr size_t kKeyWords = sizeof(int64_t) / sizeof(uint32_t);
  std::vector<DeviceRowCopy> copies;
  std::vector<DevicePartSplits> splits;
  size_t piece = 0;
  for (size_t t = 0; t < here.tables(); ++t) {
    for (size_t r = 0; r < here.ranks && here.shares_batches(t); ++r) {
      BatchMessage to = sent_[here.group(t, r)];
      to.take(here.messages.keys_sent.parts[t][r]);
      for (size_t i = 0; i < places_[t].size(); ++i) {
        const Feature& feature = call_.features[places_[t][i]];
        const Feature& there = to.features()[i];
        const Segments& segments = there.segments;
        const int64_t* keys = feature.keys;
        const float* weights = feature.segments.weights;
        if (is_parted(here, t)) {
          const size_t group = (piece + i) * here.ranks + r;
          keys = owners_.grouped + answer_.group_first[group];
          if (weights_ != nullptr) weights = weights_ + answer_.group_first[group];
          splits.push_back({feature.segments.row_splits, keys_.first_key[places_[t][i]],
                            segments.samples, group, writable(segments.row_splits)});
        } else if (segments.row_splits != nullptr) {
          copies.push_back(DeviceRowCopy::of(feature.segments.row_splits,
                                             writable(segments.row_splits),
                                             (segments.samples + 1) * kKeyWords));
        }
        copies.push_back(DeviceRowCopy::of(keys, writable(there.keys), segments.keys * kKeyWords));
        if (segments.weights == nullptr) continue;
        copies.push_back(DeviceRowCopy::of(weights, writable(segments.weights), segments.keys));
      }
    }
    piece += places_[t].size();
  }
  const size_t bytes =
      std::max(device_copy_rows_scratch(copies.size()), device_part_splits_scratch(splits.size()));
  void* const scratch = here.scratch(bytes);
  device_copy_rows(copies.data(), copies.size(), scratch, bytes, here.stream);
  device_write_part_splits(splits.data(), splits.size(), owners_, scratch, bytes, here.stream);
}

// --- at the owner --------------------------------------------------------------------------------

void DeviceRankBatches::add_features(const DeviceRankContext& here, size_t table,
                                     OwnerCall* owner) {
  for (size_t r = 0; r < here.ranks; ++r) {
    received_[here.group(table, r)].take(here.messages.keys_received.parts[table][r]);
  }
  for (size_t i = 0; i < places_[table].size(); ++i) {
    for (size_t r = 0; r < here.ranks; ++r) {
      Feature feature = received_[here.group(table, r)].features()[i];
      feature.name = here.call.tables[table]->name().c_str();  // the table lives as long
      owner->features.push_back(feature);
      owner->table_of.push_back(table);
    }
  }
}

template <typename Visit>
void DeviceRankBatches::each_received(const DeviceRankContext& here, size_t table,
                                      Visit&& visit) const {
  std::vector<float*> next;
  for (std::byte* part : here.messages.owner_rows.parts[table]) {
    next.push_back(reinterpret_cast<float*>(part));
  }
  for (size_t i = 0; i < places_[table].size(); ++i) {
    for (size_t r = 0; r < here.ranks; ++r) {
      visit(next[r]);
      next[r] += received_[here.group(table, r)].features()[i].segments.outputs() *
                 columns(here, table, here.own);
    }
  }
}

void DeviceRankBatches::add_outputs(const DeviceRankContext& here, size_t table,
                                    OwnerCall* owner) const {
  each_received(here, table, [owner](float* rows) { owner->outputs.push_back(rows); });
}

void DeviceRankBatches::add_gradients(const DeviceRankContext& here, size_t table,
                                      OwnerCall* owner) const {
  each_received(here, table, [owner](float* rows) { owner->gradients.push_back(rows); });
}

// --- output dispatcher, and the same way back ----------------------------------------------------

template <typename Visit>
void DeviceRankBatches::each_output(const DeviceRankContext& here, Visit&& visit) const {
  for (size_t t = 0; t < here.tables(); ++t) {
    if (!here.shares_batches(t)) continue;
    std::vector<float*> next;
    for (std::byte* part : here.messages.home_rows.parts[t]) {
      next.push_back(reinterpret_cast<float*>(part));
    }
    for (const size_t f : places_[t]) {
      const size_t outputs = call_.features[f].segments.outputs();
      visit(t, f, outputs, next);
      for (size_t r = 0; r < here.ranks; ++r) next[r] += outputs * columns(here, t, r);
    }
  }
}

void DeviceRankBatches::pool(const DeviceRankContext& here,
                             const std::vector<float*>& pooled) const {
  if (!any_) return;
  std::vector<DeviceRowCopy> copies;
  std::vector<DevicePartSum> sums;
  std::vector<const float*> parts;
  each_output(here, [&](size_t t, size_t f, size_t outputs, const std::vector<float*>& from) {
    const size_t width = here.width(t);
    if (is_parted(here, t)) {
      sums.push_back({pooled[f], outputs * width});
      parts.insert(parts.end(), from.begin(), from.end());
      return;
    }
    for (size_t r = 0; r < here.ranks; ++r) {
      const size_t count = columns(here, t, r);
      float* const to = pooled[f] + here.sharding(t).first_column(static_cast<int>(r));
      copies.push_back({from[r], to, outputs, count, count, width, false});
    }
  });
  const size_t bytes = std::max(device_copy_rows_scratch(copies.size()),
                                device_add_parts_scratch(sums.size(), here.ranks));
  void* const scratch = here.scratch(bytes);
  device_copy_rows(copies.data(), copies.size(), scratch, bytes, here.stream);
  device_add_parts(sums.data(), parts.data(), sums.size(), here.ranks, scratch, bytes, here.stream);
}

void DeviceRankBatches::write_gradients(const DeviceRankContext& here,
                                        const std::vector<const float*>& gradients) {
  if (!any_) return;
  std::vector<DeviceRowCopy> copies;
  std::vector<DeviceColumnCut> cuts;
  std::vector<float*> targets;
  each_output(here, [&](size_t t, size_t f, size_t outputs, const std::vector<float*>& to) {
    const size_t width = here.width(t);
    if (!is_parted(here, t)) {
      cuts.push_back({gradients[f], outputs, width});
      targets.insert(targets.end(), to.begin(), to.end());
      return;
    }
    for (float* part : to) copies.push_back(DeviceRowCopy::of(gradients[f], part, outputs * width));
  });
  const size_t bytes = std::max(device_copy_rows_scratch(copies.size()),
                                device_cut_columns_scratch(cuts.size(), here.ranks));
  void* const scratch = here.scratch(bytes);
  device_copy_rows(copies.data(), copies.size(), scratch, bytes, here.stream);
  device_cut_columns(cuts.data(), targets.data(), cuts.size(), here.ranks, scratch, bytes,
                     here.stream);
}

}  // namespace hotrow
