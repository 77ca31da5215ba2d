#include "core/ranks/exchange.h"

#include <algorithm>
#include <limits>

#include "core/comm/rank_stage.h"
#include "core/ranks/facts.h"
#include "core/table/device_tier.h"
#include "core/table/replica_cache.h"

namespace hotrow {

std::byte* MessageBytes::room(size_t bytes) {
  if (bytes > size_ || data_ == nullptr) {
    size_ = std::max<size_t>(bytes + bytes / 4, 8);
    data_.reset();
    data_.reset(new std::byte[size_]);  // of new, aligned to 16
  }
  return data_.get();
}

namespace {

const char* name_of(Leg leg) {
  static constexpr const char* kNames[kLegs] = {"keys",   "answers",   "rows",
                                                "pushes", "gradients", "sums"};
  return kNames[static_cast<size_t>(leg)];
}

}  // namespace

RankExchange::RankExchange(const LayerCall& call, RankPass* pass, Communicator* queued)
    : call_(call),
      pass_(pass),
      queued_(queued),
      ranks_(*call.tables[0]->sharding().ranks),
      size_(static_cast<size_t>(ranks_.size())),
      places_(call.features_by_table()) {
  if (pass_->tables.empty()) {
    keep_together(call.tables);
    for (size_t t = 0; t < call.tables.size(); ++t) {
      pass_->tables.push_back(TableExchange::make(*call.tables[t], t));
    }
  }
}

void RankExchange::collect(bool insert) {
  for (auto& table : pass_->tables) table->set_training(insert);
  RankStage stage(ranks_, "distinct");
  pass_->failure = RankFailure::of([&] {
    for (auto& table : pass_->tables) table->begin_batch();
    each_table([&](size_t t) { pass_->tables[t]->collect(features(t)); });
    for (auto& table : pass_->tables) table->take_kept();
  });
}

void RankExchange::send_keys(bool insert) {
  exchange_facts(insert);
  exchange(Leg::kKeys, [&](size_t t) {
    for (size_t r = 0; r < size_; ++r) {
      pass_->tables[t]->write_keys(static_cast<int>(r), to(Leg::kKeys, t)[r]);
    }
  });
  each_table([&](size_t t) {
    for (size_t r = 0; r < size_; ++r) {
      pass_->tables[t]->take_keys(static_cast<int>(r), from(Leg::kKeys, t)[r]);
    }
  });
  if (!is_stale()) return;
  exchange(Leg::kAnswers, [&](size_t t) {
    for (size_t r = 0; r < size_; ++r) {
      pass_->tables[t]->write_answers(static_cast<int>(r), to(Leg::kAnswers, t)[r]);
    }
  });
  each_table([&](size_t t) {
    for (size_t r = 0; r < size_; ++r) {
      pass_->tables[t]->take_answers(static_cast<int>(r), from(Leg::kAnswers, t)[r]);
    }
  });
}

void RankExchange::look_up(bool insert, size_t* missing) {
  {
    RankStage stage(ranks_, "lookup");
    prepare_owner();
    pass_->owner_ticket = forward_local(owner_call(), insert, pass_->owner.outputs, missing);
    if (is_stale()) answer_lookups(insert);
  }
  exchange(Leg::kRows, [](size_t) {});
}

void RankExchange::pool(const std::vector<float*>& pooled) {
  RankStage stage(ranks_, "pool");
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    pass_->tables[t]->take_rows(const_parts(Leg::kRows, t));
  }
  struct Piece {
    size_t table, feature, of_table, first, last;
  };
  std::vector<Piece> pieces;
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    for (size_t i = 0; i < places_[t].size(); ++i) {
      const size_t outputs = call_.features[places_[t][i]].segments.outputs();
      for (size_t first = 0; first < outputs; first += kPoolOutputs) {
        pieces.push_back({t, places_[t][i], i, first, std::min(outputs, first + kPoolOutputs)});
      }
    }
  }
  call_.executor.run(pieces.size(), [&](size_t p) {
    const Piece& piece = pieces[p];
    pass_->tables[piece.table]->pool(piece.of_table, call_.features[piece.feature], piece.first,
                                     piece.last, pooled[piece.feature]);
  });
}

void RankExchange::backward(const std::vector<const float*>& gradients,
                            const BackwardOptions& options) {
  if (is_stale()) exchange_pushes(gradients, options);
  exchange(Leg::kGradients, [&](size_t t) {
    std::vector<const float*> own;
    for (size_t f : places_[t]) own.push_back(gradients[f]);
    pass_->tables[t]->write_gradients(features(t), own, to(Leg::kGradients, t).data());
  });
  each_table([&](size_t t) { pass_->tables[t]->take_gradients(const_parts(Leg::kGradients, t)); });
  const bool sums = std::any_of(call_.tables.begin(), call_.tables.end(), [](const Table* table) {
    return table->sharding().scheme == Scheme::kReplicated;
  });
  if (sums) {
    exchange(Leg::kSums, [&](size_t t) {
      for (size_t r = 0; r < size_; ++r) {
        pass_->tables[t]->write_sums(static_cast<int>(r), to(Leg::kSums, t)[r]);
      }
    });
    each_table([&](size_t t) { pass_->tables[t]->take_sums(const_parts(Leg::kSums, t)); });
  }
  RankStage stage(ranks_, "update");
  OwnerCall here;
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    if (!pass_->tables[t]->is_stale()) {
      const auto first = static_cast<ptrdiff_t>(pass_->owner_begins[t]);
      const auto last = static_cast<ptrdiff_t>(pass_->owner_begins[t + 1]);
      const auto& features = pass_->owner.features;
      here.features.insert(here.features.end(), features.begin() + first, features.begin() + last);
      here.table_of.resize(here.features.size(), t);
    }
    pass_->tables[t]->add_gradients(&here);
  }
  BackwardOptions here_options = options;
  here_options.ticket = is_stale() ? 0 : pass_->owner_ticket;
  backward_local({call_.tables, here.features, here.table_of, call_.executor}, here.gradients,
                 here_options);
}

void RankExchange::prefetch() {
  if (call_.tables[0]->on_gpu()) {
    pass_->owner = {};
    for (auto& table : pass_->tables) table->list_received(&pass_->owner);
    pass_->ahead = call_.tables[0]->tier().copy_ahead(pass_->owner.features);
  }
  OwnerCall wanted;
  std::vector<int64_t> keys;
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    if (call_.tables[t]->tier().slots() == 0) continue;
    wanted.features.clear();
    const std::vector<std::byte*> nowhere(size_, nullptr);
    pass_->tables[t]->look_up(nowhere.data(), &wanted);
    keys.clear();
    for (const Feature& feature : wanted.features) {
      keys.insert(keys.end(), feature.keys, feature.keys + feature.segments.keys);
    }
    call_.tables[t]->prefetch(keys.data(), keys.size());
  }
}

void RankExchange::push_all() {
  for (auto& table : pass_->tables) table->push_all();
}

void RankExchange::prepare_owner() {
  lay_out_sent(Leg::kRows);
  pass_->owner.features.clear();
  pass_->owner.table_of.clear();
  pass_->owner.outputs.clear();
  pass_->owner_begins.assign(1, 0);
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    pass_->tables[t]->look_up(to(Leg::kRows, t).data(), &pass_->owner);
    pass_->owner_begins.push_back(pass_->owner.features.size());
  }
  pass_->owner_ticket = 0;
}

bool RankExchange::is_stale() const {
  return std::any_of(pass_->tables.begin(), pass_->tables.end(),
                     [](const auto& table) { return table->is_stale(); });
}

void RankExchange::answer_lookups(bool insert) {
  if (!insert) {
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      pass_->tables[t]->looked_up(nullptr, to(Leg::kRows, t).data());
    }
    return;
  }
  read_lines(owner_call(), pass_->owner_ticket, [&](size_t t, const std::byte* const* lines) {
    pass_->tables[t]->looked_up(lines, to(Leg::kRows, t).data());
  });
}

void RankExchange::exchange_pushes(const std::vector<const float*>& gradients,
                                   const BackwardOptions& options) {
  exchange(Leg::kPushes, [&](size_t t) {
    std::vector<const float*> own;
    for (size_t f : places_[t]) own.push_back(gradients[f]);
    const float rate = options.learning_rates == nullptr ? std::numeric_limits<float>::quiet_NaN()
                                                         : options.learning_rates[t];
    pass_->tables[t]->prepare_gradients(features(t), own, rate);
    for (size_t r = 0; r < size_; ++r) {
      pass_->tables[t]->write_pushes(static_cast<int>(r), to(Leg::kPushes, t)[r]);
    }
  });
  each_table([&](size_t t) {
    for (size_t r = 0; r < size_; ++r) {
      pass_->tables[t]->take_pushes(static_cast<int>(r), from(Leg::kPushes, t)[r]);
    }
  });
}

std::vector<const Feature*> RankExchange::features(size_t table) const {
  std::vector<const Feature*> found;
  for (size_t f : places_[table]) found.push_back(&call_.features[f]);
  return found;
}

template <typename Do>
void RankExchange::each_table(Do&& what) {
  call_.executor.run(call_.tables.size(), [&](size_t t) { what(t); });
}

LayerCall RankExchange::owner_call() const {
  return {call_.tables, pass_->owner.features, pass_->owner.table_of, call_.executor};
}

void RankExchange::lay_out_sent(Leg leg) {
  pass_->sent[static_cast<size_t>(leg)].lay_out(
      call_.tables.size(), size_,
      [&](size_t t, size_t r) { return pass_->tables[t]->bytes_to(leg, static_cast<int>(r)); });
}

template <typename Write>
void RankExchange::exchange(Leg leg, Write&& write) {
  Messages& sent = pass_->sent[static_cast<size_t>(leg)];
  Messages& received = pass_->received[static_cast<size_t>(leg)];
  received.lay_out(call_.tables.size(), size_, [&](size_t t, size_t r) {
    return pass_->tables[t]->bytes_from(leg, static_cast<int>(r));
  });
  if (leg != Leg::kRows) {
    lay_out_sent(leg);
    RankStage stage(ranks_, leg == Leg::kGradients ? "sum" : "pack");
    each_table(write);
  }
  RankStage stage(ranks_, name_of(leg));
  stage.count(sent.bytes, received.bytes);
  run(name_of(leg), [&](Communicator& communicator) {
    communicator.all_to_all(sent.memory.room(sent.total), sent.bytes.data(),
                            received.memory.room(received.total), received.bytes.data());
  });
}

void RankExchange::run(const char* what, const Collectives::Work& work) {
  if (queued_ != nullptr) {
    work(*queued_);
  } else {
    ranks_.run(what + (" of " + call_.tables[0]->name()), work);
  }
}

void RankExchange::exchange_facts(bool insert) {
  size_t count = 0;
  std::vector<size_t> firsts, features;
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    firsts.push_back(count);
    features.push_back(places_[t].size());
    count += pass_->tables[t]->facts(places_[t].size());
  }
  RankFacts facts(ranks_, count);
  for (size_t r = 0; r < size_ && pass_->failure.code == Code::kOk; ++r) {
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      pass_->tables[t]->write_facts(static_cast<int>(r), facts.to(r) + firsts[t]);
    }
  }
  facts.exchange([this](const char* what, const Collectives::Work& work) { run(what, work); },
                 pass_->failure, call_, features, insert ? "insert" : "read");
  for (size_t t = 0; t < call_.tables.size(); ++t) {
    for (size_t r = 0; r < size_; ++r) {
      pass_->tables[t]->read_facts(static_cast<int>(r), facts.from(r) + firsts[t]);
    }
  }
}

}  // namespace hotrow
