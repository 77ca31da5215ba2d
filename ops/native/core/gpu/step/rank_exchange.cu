#include <algorithm>
#include <string>

#include "core/comm/rank_stage.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/kernels/update.h"
#include "core/gpu/step/layer.h"
#include "core/gpu/step/rank_exchange.h"

namespace hotrow {
namespace {

// What the host reads back of a batch's keys.
struct Answer {
  Answer(DeviceArena& arena, size_t groups)
      : wrong(arena.take<WrongKeys>(1)),
        key(arena.take<int64_t>(1)),
        group_first(arena.take<uint32_t>(groups + 1)) {}
  WrongKeys* wrong;
  int64_t* key;
  uint32_t* group_first;
};

}  // namespace

DeviceRankExchange::DeviceRankExchange(const LayerCall& call, DeviceCommunicator& on_gpu,
                                       DeviceRankWork* work, DeviceRankPass* pass,
                                       DeviceStream stream)
    : call_(call),
      on_gpu_(on_gpu),
      work_(work),
      pass_(pass),
      stream_(stream),
      ranks_(*call.tables[0]->sharding().ranks),
      size_(static_cast<size_t>(ranks_.size())) {}

// --- input dispatcher ----------------------------------------------------------------------------

void DeviceRankExchange::collect() {
  RankStage stage(ranks_, "distinct");
  pass_->tables = call_.tables;
  pass_->sent.assign(call_.tables.size() * size_, 0);
  pass_->received = pass_->sent;
  pass_->failure = RankFailure::of([this] {
    group_keys();
    check_keys();
  });
}

void DeviceRankExchange::group_keys() {
  const size_t tables = call_.tables.size(), groups = tables * size_;
  pass_->keys = KeyPlaces::of(call_);
  const size_t count = pass_->keys.count();
  pass_->all = CallKeys::collect(call_, pass_->keys, &pass_->described, stream_);
  take_from(pass_->memory, [&](DeviceArena& arena) {
    pass_->unique = DeviceUnique::take(arena, count, tables);
    pass_->owners = DeviceOwners::take(arena, count, groups);
    pass_->placed = DevicePlaced::take(arena, count);
    pass_->groups = arena.take<DeviceKeyGroup>(groups);
  });
  std::vector<DeviceOwnerRule> rules;
  for (const Table* table : call_.tables) {
    const Sharding& sharding = table->sharding();
    const bool whole = sharding.scheme == Scheme::kTable;
    rules.push_back({whole ? sharding.owner : -1, sharding.hashed ? 1u : 0u});
  }
  const size_t bytes =
      std::max(device_unique_scratch(count), device_owners_scratch(count, tables, size_));
  device_unique({pass_->all.keys, count, pass_->all.table_begins, tables}, pass_->unique,
                scratch(bytes), bytes, stream_);
  device_owners(pass_->unique, count, tables, ranks_.size(), rules.data(), pass_->owners,
                scratch(bytes), bytes, stream_);
}

void DeviceRankExchange::check_keys() {
  const size_t groups = pass_->sent.size();
  const Answer answer =
      take_from(work_->answer, [&](DeviceArena& arena) { return Answer(arena, groups); });
  copy_async(answer.wrong, pass_->all.wrong, 1, stream_);
  copy_async(answer.group_first, pass_->owners.group_first, groups + 1, stream_);
  work_->ready.record(stream_);
  work_->ready.wait();
  if (answer.wrong->feature != WrongKeys::kNone) refuse_splits(call_, *answer.wrong);
  if (answer.wrong->key != WrongKeys::kNone) {
    copy_async(answer.key, pass_->all.keys + answer.wrong->key, 1, stream_);
    work_->ready.record(stream_);
    work_->ready.wait();
    refuse_key(call_, pass_->keys, *answer.wrong, *answer.key);
  }
  for (size_t g = 0; g < groups; ++g) {
    pass_->sent[g] = answer.group_first[g + 1] - answer.group_first[g];
  }
}

void DeviceRankExchange::exchange_facts(bool insert) {
  const size_t tables = call_.tables.size();
  RankFacts facts(ranks_, tables);
  std::vector<size_t> features(tables, 0);
  for (const size_t t : call_.table_of) ++features[t];
  for (size_t t = 0; t < tables; ++t) {
    for (size_t r = 0; r < size_; ++r) {
      facts.to(r)[t] = static_cast<int64_t>(pass_->sent[group(t, r)]);
    }
  }
  facts.exchange(
      [&](const char* what, const Collectives::Work& work) {
        ranks_.run(what + (" of " + call_.tables[0]->name()), work);
      },
      pass_->failure, call_, features, insert ? "insert, on a GPU" : "read, on a GPU");
  for (size_t t = 0; t < tables; ++t) {
    for (size_t r = 0; r < size_; ++r) {
      pass_->received[group(t, r)] = static_cast<size_t>(facts.from(r)[t]);
    }
  }
}

void DeviceRankExchange::send_keys(bool insert) {
  exchange_facts(insert);
  const size_t tables = call_.tables.size();
  const auto key_bytes = [](size_t keys) { return keys * (sizeof(int64_t) + sizeof(uint32_t)); };
  const auto row_bytes = [&](size_t t, size_t rows) { return rows * width(t) * sizeof(float); };
  pass_->keys_sent.lay_out(tables, size_,
                           [&](size_t t, size_t r) { return key_bytes(pass_->sent[group(t, r)]); });
  pass_->keys_received.lay_out(
      tables, size_, [&](size_t t, size_t r) { return key_bytes(pass_->received[group(t, r)]); });
  pass_->home_rows.lay_out(
      tables, size_, [&](size_t t, size_t r) { return row_bytes(t, pass_->sent[group(t, r)]); });
  pass_->owner_rows.lay_out(tables, size_, [&](size_t t, size_t r) {
    return row_bytes(t, pass_->received[group(t, r)]);
  });
  std::vector<DeviceKeyGroup> groups;
  for (size_t t = 0; t < tables; ++t) {
    for (size_t r = 0; r < size_; ++r) {
      auto* const keys = reinterpret_cast<int64_t*>(pass_->keys_sent.parts[t][r]);
      groups.push_back({keys, reinterpret_cast<uint32_t*>(keys + pass_->sent[group(t, r)]),
                        reinterpret_cast<float*>(pass_->home_rows.parts[t][r]), width(t)});
    }
  }
  upload(pass_->groups, groups.data(), groups.size(), stream_);
  device_place_keys(pass_->unique, pass_->keys.count(), pass_->owners, pass_->groups, groups.size(),
                    pass_->placed, stream_);
  exchange("keys", pass_->keys_sent, pass_->keys_received);
  prepare_owner();
}

void DeviceRankExchange::prepare_owner() {
  OwnerCall& owner = pass_->owner;
  owner = {};
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    for (size_t r = 0; r < size_; ++r) {
      const size_t count = pass_->received[group(t, r)];
      const auto* const keys = reinterpret_cast<const int64_t*>(pass_->keys_received.parts[t][r]);
      auto* const rows = reinterpret_cast<float*>(pass_->owner_rows.parts[t][r]);
      owner.add(t, call_.tables[t]->name().c_str(), keys, count,
                reinterpret_cast<const uint32_t*>(keys + count), rows);
      owner.gradients.push_back(rows);
    }
  }
  pass_->owner_ticket = 0;
}

LayerCall DeviceRankExchange::owner_call() const {
  return {call_.tables, pass_->owner.features, pass_->owner.table_of, call_.executor};
}

// --- lookup at the owner, and output dispatcher --------------------------------------------------

void DeviceRankExchange::look_up(bool insert, size_t* missing) {
  {
    RankStage stage(ranks_, "lookup");
    pass_->owner_ticket =
        device_forward_local(owner_call(), insert, pass_->owner.outputs, missing, stream_);
  }
  exchange("rows", pass_->owner_rows, pass_->home_rows);
}

std::vector<DeviceFeature> DeviceRankExchange::features() const {
  std::vector<DeviceFeature> features;
  for (size_t f = 0; f < call_.features.size(); ++f) {
    DeviceFeature feature;
    feature.segments = call_.features[f].segments;
    feature.first_key = pass_->keys.first_key[f];
    feature.width = width(call_.table_of[f]);
    feature.bare = true;
    features.push_back(feature);
  }
  return features;
}

void DeviceRankExchange::pool(const std::vector<float*>& pooled) {
  RankStage stage(ranks_, "pool");
  std::vector<DeviceFeature> all = features();
  for (size_t f = 0; f < all.size(); ++f) all[f].pooled = pooled[f];
  const size_t bytes = device_pool_scratch(all.size());
  device_pool(all.data(), all.size(), reinterpret_cast<const std::byte* const*>(pass_->placed.rows),
              pass_->placed.inverse, scratch(bytes), bytes, stream_);
}

// --- the same way back ---------------------------------------------------------------------------

void DeviceRankExchange::sum_gradients(const std::vector<const float*>& gradients) {
  RankStage stage(ranks_, "sum");
  const size_t count = pass_->keys.count();
  const std::vector<DeviceFeature> all = features();
  const bool plain = std::all_of(all.begin(), all.end(), [](const DeviceFeature& feature) {
    return feature.segments.plain();
  });
  DeviceTerms terms;
  DevicePositions positions;
  take_from(work_->terms, [&](DeviceArena& arena) {
    terms = DeviceTerms::take(arena, count, !plain);
    positions = DevicePositions::take(arena, count);
  });
  // Sums each group as if it were a table, into the message to its owner.
  std::vector<DeviceSums> sums;
  size_t most_width = 0;
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    most_width = std::max(most_width, width(t));
    for (size_t r = 0; r < size_; ++r) {
      sums.push_back({width(t), reinterpret_cast<float*>(pass_->home_rows.parts[t][r])});
    }
  }
  DeviceUnique placed = pass_->unique;
  placed.counts = pass_->placed.counts;
  placed.inverse = pass_->placed.inverse;
  const size_t bytes = std::max({device_pool_scratch(all.size()), device_positions_scratch(count),
                                 device_sum_scratch(count, sums.size(), most_width)});
  device_terms(all.data(), gradients.data(), all.size(), terms, scratch(bytes), bytes, stream_);
  device_positions(placed, count, positions, scratch(bytes), bytes, stream_);
  device_sum(sums.data(), sums.size(), pass_->owners.group_first,
             {terms.rows, terms.shares, positions.begins, positions.order, count}, scratch(bytes),
             bytes, stream_);
}

void DeviceRankExchange::backward(const std::vector<const float*>& gradients,
                                  const BackwardOptions& options) {
  sum_gradients(gradients);
  exchange("gradients", pass_->home_rows, pass_->owner_rows);
  RankStage stage(ranks_, "update");
  BackwardOptions here = options;
  here.ticket = pass_->owner_ticket;
  device_backward_local(owner_call(), pass_->owner.gradients, here, stream_);
}

void DeviceRankExchange::exchange(const char* leg, const DeviceMessages& sent,
                                  const DeviceMessages& received) {
  RankStage stage(ranks_, leg);
  stage.count(sent.bytes, received.bytes);
  const std::string what = leg + (" of " + call_.tables[0]->name());
  const auto first = [](const DeviceMessages& messages) {
    return messages.total == 0 ? nullptr : messages.memory.data();
  };
  ranks_.run(what, [&](Communicator&) {
    on_gpu_.begin(what);
    on_gpu_.all_to_all(first(sent), sent.bytes.data(), first(received), received.bytes.data(),
                       stream_);
  });
  // No caller waits for the arrival. The queue waits for it, and so detects ranks that fail
  // meanwhile.
  ranks_.when_done(
      ranks_.submit("the arrival of " + what, [gpu = &on_gpu_](Communicator&) { gpu->finish(); }),
      [](std::exception_ptr) {});
}

}  // namespace hotrow
