#include "core/rank_step.h"

#include <farmhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>

#include "core/rank_plan.h"

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

constexpr size_t kPoolOutputs = 2048;
constexpr size_t kMostPlans = 64;
constexpr size_t kMessageBytes = 1024;  // of an error

const char* name_of(Leg leg) {
  static constexpr const char* kNames[kLegs] = {"keys",   "answers",   "rows",
                                                "pushes", "gradients", "sums"};
  return kNames[static_cast<size_t>(leg)];
}

// Counts the time until it goes as a call of a stage.
class Stage {
 public:
  Stage(Collectives& ranks, const char* name)
      : ranks_(ranks), name_(name), begin_(std::chrono::steady_clock::now()) {}
  ~Stage() {
    const auto passed = std::chrono::steady_clock::now() - begin_;
    ranks_.count(name_, sent_, received_,
                 static_cast<uint64_t>(
                     std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count()));
  }
  // bytes: (R) to and from each rank.
  void count(const std::vector<size_t>& to, const std::vector<size_t>& from) {
    for (size_t r = 0; r < to.size(); ++r) {
      if (r == static_cast<size_t>(ranks_.rank())) continue;
      sent_ += to[r];
      received_ += from[r];
    }
  }

 private:
  Collectives& ranks_;
  const char* name_;
  std::chrono::steady_clock::time_point begin_;
  uint64_t sent_ = 0, received_ = 0;
};

// The features of each table.
std::vector<std::vector<size_t>> features_by_table(const LayerCall& call) {
  std::vector<std::vector<size_t>> places(call.tables.size());
  for (size_t f = 0; f < call.features.size(); ++f) places[call.table_of[f]].push_back(f);
  return places;
}

// A call on several ranks, with what it needs at every turn.
class RankCall {
 public:
  RankCall(const LayerCall& call, RankPlan* plan)
      : call_(call),
        plan_(plan),
        ranks_(*call.tables[0]->sharding().ranks),
        size_(static_cast<size_t>(ranks_.size())),
        places_(features_by_table(call)) {
    if (plan_->tables.empty()) {
      for (size_t t = 0; t < call.tables.size(); ++t) {
        plan_->tables.push_back(TableExchange::make(*call.tables[t], t));
      }
    }
  }

  // Keys go to their owners.
  void dispatch(bool insert) {
    for (auto& table : plan_->tables) table->set_training(insert);
    Failure failure;
    {
      Stage stage(ranks_, "distinct");
      try {
        call_.executor.run(call_.tables.size(),
                           [&](size_t t) { plan_->tables[t]->collect(features(t)); });
      } catch (const Error& e) {
        failure = {e.code(), e.what()};
      } catch (const std::bad_alloc&) {
        failure = {Code::kResourceExhausted, "out of memory for the keys of a batch"};
      }
    }
    exchange_facts(insert, failure);
    exchange(Leg::kKeys, [&](size_t t) {
      for (size_t r = 0; r < size_; ++r) {
        plan_->tables[t]->write_keys(static_cast<int>(r), to(Leg::kKeys, t)[r]);
      }
    });
    each_table([&](size_t t) {
      for (size_t r = 0; r < size_; ++r) {
        plan_->tables[t]->take_keys(static_cast<int>(r), from(Leg::kKeys, t)[r]);
      }
    });
    if (!is_stale()) return;
    exchange(Leg::kAnswers, [&](size_t t) {
      for (size_t r = 0; r < size_; ++r) {
        plan_->tables[t]->write_answers(static_cast<int>(r), to(Leg::kAnswers, t)[r]);
      }
    });
    each_table([&](size_t t) {
      for (size_t r = 0; r < size_; ++r) {
        plan_->tables[t]->take_answers(static_cast<int>(r), from(Leg::kAnswers, t)[r]);
      }
    });
  }

  // Rows at the owner, and back home.
  void look_up(bool insert, const std::vector<float*>& pooled, size_t* missing) {
    {
      Stage stage(ranks_, "lookup");
      prepare_owner();
      plan_->owner_ticket = forward_here(owner_call(), insert, plan_->owner.outputs, missing);
      if (is_stale()) tell_owners_lines(insert);
    }
    exchange(Leg::kRows, [](size_t) {});
    Stage stage(ranks_, "pool");
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      plan_->tables[t]->take_rows(const_parts(Leg::kRows, t));
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
      plan_->tables[piece.table]->pool(piece.of_table, call_.features[piece.feature], piece.first,
                                       piece.last, pooled[piece.feature]);
    });
  }

  void backward(const std::vector<const float*>& gradients, const BackwardOptions& options) {
    if (is_stale()) exchange_pushes(gradients, options);
    exchange(Leg::kGradients, [&](size_t t) {
      std::vector<const float*> own;
      for (size_t f : places_[t]) own.push_back(gradients[f]);
      plan_->tables[t]->write_gradients(features(t), own, to(Leg::kGradients, t).data());
    });
    each_table(
        [&](size_t t) { plan_->tables[t]->take_gradients(const_parts(Leg::kGradients, t)); });
    const bool sums = std::any_of(call_.tables.begin(), call_.tables.end(), [](const Table* table) {
      return table->sharding().scheme == Scheme::kReplicated;
    });
    if (sums) {
      exchange(Leg::kSums, [&](size_t t) {
        for (size_t r = 0; r < size_; ++r) {
          plan_->tables[t]->write_sums(static_cast<int>(r), to(Leg::kSums, t)[r]);
        }
      });
      each_table([&](size_t t) { plan_->tables[t]->take_sums(const_parts(Leg::kSums, t)); });
    }
    Stage stage(ranks_, "update");
    OwnerCall here;
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      if (!plan_->tables[t]->is_stale()) {
        const auto first = static_cast<ptrdiff_t>(plan_->owner_begins[t]);
        const auto last = static_cast<ptrdiff_t>(plan_->owner_begins[t + 1]);
        const auto& features = plan_->owner.features;
        here.features.insert(here.features.end(), features.begin() + first,
                             features.begin() + last);
        here.table_of.resize(here.features.size(), t);
      }
      plan_->tables[t]->add_gradients(&here);
    }
    BackwardOptions here_options = options;
    here_options.ticket = is_stale() ? 0 : plan_->owner_ticket;
    backward_here({call_.tables, here.features, here.table_of, call_.executor}, here.gradients,
                  here_options);
  }

  void push_all() {
    for (auto& table : plan_->tables) table->push_all();
  }

  // What is to be looked up here.
  void prepare_owner() {
    lay_out_sent(Leg::kRows);
    plan_->owner.features.clear();
    plan_->owner.table_of.clear();
    plan_->owner.outputs.clear();
    plan_->owner_begins.assign(1, 0);
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      plan_->tables[t]->look_up(to(Leg::kRows, t).data(), &plan_->owner);
      plan_->owner_begins.push_back(plan_->owner.features.size());
    }
    plan_->owner_ticket = 0;
  }

 private:
  bool is_stale() const {
    return std::any_of(plan_->tables.begin(), plan_->tables.end(),
                       [](const auto& table) { return table->is_stale(); });
  }

  // Versions and states go with the rows.
  void tell_owners_lines(bool insert) {
    if (!insert) {
      for (size_t t = 0; t < call_.tables.size(); ++t) {
        plan_->tables[t]->looked_up(nullptr, to(Leg::kRows, t).data());
      }
      return;
    }
    read_lines(owner_call(), plan_->owner_ticket, [&](size_t t, const std::byte* const* lines) {
      plan_->tables[t]->looked_up(lines, to(Leg::kRows, t).data());
    });
  }

  void exchange_pushes(const std::vector<const float*>& gradients, const BackwardOptions& options) {
    exchange(Leg::kPushes, [&](size_t t) {
      std::vector<const float*> own;
      for (size_t f : places_[t]) own.push_back(gradients[f]);
      const float rate = options.learning_rates == nullptr ? std::numeric_limits<float>::quiet_NaN()
                                                           : options.learning_rates[t];
      plan_->tables[t]->prepare_gradients(features(t), own, rate);
      for (size_t r = 0; r < size_; ++r) {
        plan_->tables[t]->write_pushes(static_cast<int>(r), to(Leg::kPushes, t)[r]);
      }
    });
    each_table([&](size_t t) {
      for (size_t r = 0; r < size_; ++r) {
        plan_->tables[t]->take_pushes(static_cast<int>(r), from(Leg::kPushes, t)[r]);
      }
    });
  }

  struct Failure {
    Code code = Code::kOk;
    std::string message;
  };

  std::vector<const Feature*> features(size_t table) const {
    std::vector<const Feature*> found;
    for (size_t f : places_[table]) found.push_back(&call_.features[f]);
    return found;
  }

  std::vector<std::byte*>& to(Leg leg, size_t table) {
    return plan_->sent[static_cast<size_t>(leg)].parts[table];
  }
  std::vector<std::byte*>& from(Leg leg, size_t table) {
    return plan_->received[static_cast<size_t>(leg)].parts[table];
  }
  const std::byte* const* const_parts(Leg leg, size_t table) { return from(leg, table).data(); }

  template <typename Do>
  void each_table(Do&& what) {
    call_.executor.run(call_.tables.size(), [&](size_t t) { what(t); });
  }

  LayerCall owner_call() const {
    return {call_.tables, plan_->owner.features, plan_->owner.table_of, call_.executor};
  }

  void lay_out_sent(Leg leg) {
    plan_->sent[static_cast<size_t>(leg)].lay_out(
        call_.tables.size(), size_,
        [&](size_t t, size_t r) { return plan_->tables[t]->bytes_to(leg, static_cast<int>(r)); });
  }

  // write(table) fills the parts of a table; of rows they are there already.
  template <typename Write>
  void exchange(Leg leg, Write&& write) {
    Messages& sent = plan_->sent[static_cast<size_t>(leg)];
    Messages& received = plan_->received[static_cast<size_t>(leg)];
    received.lay_out(call_.tables.size(), size_, [&](size_t t, size_t r) {
      return plan_->tables[t]->bytes_from(leg, static_cast<int>(r));
    });
    if (leg != Leg::kRows) {
      lay_out_sent(leg);
      Stage stage(ranks_, leg == Leg::kGradients ? "sum" : "pack");
      each_table(write);
    }
    Stage stage(ranks_, name_of(leg));
    stage.count(sent.bytes, received.bytes);
    ranks_.run(std::string(name_of(leg)) + " of " + call_.tables[0]->name(),
               [&](Communicator& communicator) {
                 communicator.all_to_all(sent.memory.room(sent.total), sent.bytes.data(),
                                         received.memory.room(received.total),
                                         received.bytes.data());
               });
  }

  // What all must know before keys can be exchanged; also, that somebody failed.
  void exchange_facts(bool insert, const Failure& failure) {
    Stage stage(ranks_, "sizes");
    constexpr size_t kHead = 2;  // status, call
    size_t count = kHead;
    std::vector<size_t> firsts;
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      firsts.push_back(count);
      count += plan_->tables[t]->facts(places_[t].size());
    }
    const int64_t fingerprint = fingerprint_of_call(insert);
    std::vector<int64_t> sent(count * size_, 0), received(count * size_);
    for (size_t r = 0; r < size_; ++r) {
      int64_t* facts = sent.data() + r * count;
      facts[0] = static_cast<int64_t>(failure.code);
      facts[1] = fingerprint;
      if (failure.code != Code::kOk) continue;
      for (size_t t = 0; t < call_.tables.size(); ++t) {
        plan_->tables[t]->tell(static_cast<int>(r), facts + firsts[t]);
      }
    }
    const std::vector<size_t> bytes(size_, count * sizeof(int64_t));
    stage.count(bytes, bytes);
    ranks_.run("sizes of " + call_.tables[0]->name(), [&](Communicator& communicator) {
      communicator.all_to_all(reinterpret_cast<const std::byte*>(sent.data()), bytes.data(),
                              reinterpret_cast<std::byte*>(received.data()), bytes.data());
    });
    for (size_t r = 0; r < size_; ++r) {
      if (received[r * count + 1] == fingerprint) continue;
      fail(Code::kFailedPrecondition,
           "rank %zu and rank %d look up other tables, or features of them, at the same time (here "
           "%s and more); all ranks must call the layers in the same order",
           r, ranks_.rank(), call_.tables[0]->name().c_str());
    }
    for (size_t r = 0; r < size_; ++r) {
      if (received[r * count] != 0) fail_together(failure);
    }
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      for (size_t r = 0; r < size_; ++r) {
        plan_->tables[t]->hear(static_cast<int>(r), received.data() + r * count + firsts[t]);
      }
    }
  }

  int64_t fingerprint_of_call(bool insert) const {
    std::string text = insert ? "insert" : "read";
    for (size_t t = 0; t < call_.tables.size(); ++t) {
      const Sharding& sharding = call_.tables[t]->sharding();
      text += '\0' + call_.tables[t]->name() + '\0' + std::to_string(places_[t].size()) + '/' +
              std::to_string(static_cast<int>(sharding.scheme)) + '/' +
              std::to_string(sharding.owner) + '/' + std::to_string(sharding.width);
    }
    return static_cast<int64_t>(util::Fingerprint64(text));
  }

  // All ranks come here when one failed: they learn what, and fail alike.
  [[noreturn]] void fail_together(const Failure& failure) {
    std::vector<char> own(kMessageBytes, 0), all(kMessageBytes * size_);
    own[0] = static_cast<char>(failure.code);
    std::snprintf(own.data() + 1, kMessageBytes - 1, "%s", failure.message.c_str());
    const std::vector<size_t> bytes(size_, kMessageBytes);
    ranks_.run("errors of " + call_.tables[0]->name(), [&](Communicator& communicator) {
      communicator.all_gather(reinterpret_cast<const std::byte*>(own.data()),
                              reinterpret_cast<std::byte*>(all.data()), bytes.data());
    });
    for (size_t r = 0; r < size_; ++r) {
      const char* told = all.data() + r * kMessageBytes;
      if (told[0] != 0) throw Together{static_cast<Code>(told[0]), r, told + 1};
    }
    fail(Code::kInternal, "a rank failed and did not say why");
  }

 public:
  // A failure that all ranks know of.
  struct Together {
    Code code;
    size_t rank;
    std::string message;
  };

 private:
  const LayerCall& call_;
  RankPlan* plan_;
  Collectives& ranks_;
  size_t size_;
  std::vector<std::vector<size_t>> places_;
};

// Runs a part of a step. What fails here ends the collectives of all ranks, unless all know.
template <typename Part>
void for_all(Collectives& ranks, Part&& part) {
  try {
    part();
  } catch (const RankCall::Together& together) {
    fail(together.code, "rank %zu: %s", together.rank, together.message.c_str());
  } catch (const Error& e) {
    ranks.fail(e.code(), e.what());
    throw;
  } catch (const std::bad_alloc&) {
    ranks.fail(Code::kResourceExhausted, "out of memory in a step");
    throw;
  }
}

std::mutex plans_mutex;

// The plan of a ticket; with ticket 0 one that nobody waits for.
RankPlan* plan_of(const LayerCall& call, int64_t ticket) {
  std::lock_guard lock(plans_mutex);
  auto& plans = call.tables[0]->rank_plans;
  for (auto& plan : plans) {
    if (plan->ticket == ticket && (ticket == 0 || plan->tables.size() == call.tables.size())) {
      return plan.get();
    }
  }
  if (ticket != 0) return nullptr;
  if (plans.size() < kMostPlans) {
    plans.push_back(std::make_unique<RankPlan>());
    return plans.back().get();
  }
  return std::min_element(plans.begin(), plans.end(),
                          [](const auto& a, const auto& b) { return a->ticket < b->ticket; })
      ->get();
}

// Exchanges are made for the tables of a call; a plan of another layer is of no use.
void fit(RankPlan* plan, const LayerCall& call) {
  bool same = plan->tables.size() == call.tables.size();
  for (size_t t = 0; same && t < call.tables.size(); ++t) {
    same = &plan->tables[t]->table() == call.tables[t];
  }
  if (!same) plan->tables.clear();
}

}  // namespace

bool on_ranks(const std::vector<Table*>& tables) {
  const auto& ranks = tables[0]->sharding().ranks;
  for (const Table* table : tables) {
    if (table->sharding().ranks != ranks) {
      fail(Code::kInvalidArgument,
           "tables %s and %s are split over other ranks; those of a layer must be alike",
           tables[0]->name().c_str(), table->name().c_str());
    }
  }
  return ranks != nullptr;
}

int64_t rank_forward(const LayerCall& call, bool insert, const std::vector<float*>& pooled,
                     size_t* missing) {
  RankPlan* plan = plan_of(call, 0);
  int64_t ticket = 0;
  for_all(*call.tables[0]->sharding().ranks, [&] {
    fit(plan, call);
    plan->ticket = 0;
    RankCall step(call, plan);
    step.dispatch(insert);
    step.look_up(insert, pooled, missing);
    if (insert) ticket = plan->ticket = next_ticket();
  });
  return ticket;
}

void rank_backward(const LayerCall& call, const std::vector<const float*>& gradients,
                   const BackwardOptions& options) {
  RankPlan* plan = options.ticket == 0 ? nullptr : plan_of(call, options.ticket);
  for_all(*call.tables[0]->sharding().ranks, [&] {
    const bool again = plan == nullptr;
    if (again) {
      plan = plan_of(call, 0);
      fit(plan, call);
    }
    plan->ticket = 0;
    RankCall step(call, plan);
    if (again) {
      step.dispatch(true);
      step.prepare_owner();
    }
    step.backward(gradients, options);
  });
}

void rank_push_all(const std::vector<Table*>& tables, const float* learning_rates,
                   const Executor& executor) {
  if (!on_ranks(tables)) return;
  std::vector<Table*> stale;
  for (Table* table : tables) {
    if (table->stale() != nullptr) stale.push_back(table);
  }
  if (stale.empty()) return;
  LayerCall call;
  call.tables = stale;
  call.executor = executor;
  std::vector<float> rates;
  BackwardOptions options;
  options.what = Backward::kUpdate;
  if (learning_rates != nullptr) {
    for (size_t t = 0; t < tables.size(); ++t) {
      if (tables[t]->stale() != nullptr) rates.push_back(learning_rates[t]);
    }
    options.learning_rates = rates.data();
  }
  RankPlan* plan = plan_of(call, 0);
  for_all(*stale[0]->sharding().ranks, [&] {
    fit(plan, call);
    RankCall step(call, plan);
    step.dispatch(true);
    step.prepare_owner();
    step.push_all();
    step.backward({}, options);
  });
}

}  // namespace hotrow
