#include "core/ranks/stale_exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/kernels/float_mode.h"

namespace hotrow {
namespace {

// A row's state is sent again after at least kLeastGrowth more updates, and 1 / kGrowth of its
// count.
constexpr uint32_t kLeastGrowth = 16, kGrowth = 2;

}  // namespace

StaleExchange::StaleExchange(Table& table, size_t number)
    : OwnedExchange(table, number),
      evicted_to_(ranks()),
      coming_(ranks()),
      pushed_(ranks()),
      their_words_(ranks()),
      answers_(ranks()),
      their_pushes_(ranks()),
      sent_keys_(ranks()),
      pushed_keys_(ranks()),
      sent_lookups_(ranks()),
      pushed_lookups_(ranks()),
      their_evicted_(ranks()) {}

size_t StaleExchange::row_bytes(const ChosenKeys& rows) const {
  const size_t floats = rows.count * width() + rows.states * state_floats();
  return StaleWord::bytes(rows.kept) + floats * sizeof(float);
}

size_t StaleExchange::gradient_bytes(const ChosenKeys& gradients, size_t evicted) const {
  return evicted * sizeof(int64_t) + (gradients.kept + evicted) * (2 * sizeof(uint32_t)) +
         (gradients.count + evicted) * width() * sizeof(float);
}

// --- at home ------------------------------------------------------------------------------------

void StaleExchange::begin_batch() { kept().begin_batch(); }

void StaleExchange::collect(const std::vector<const Feature*>& features) {
  OwnedExchange::collect(features);
  ReplicaCache& kept = this->kept();
  const size_t number = stale().number;
  words_.assign(keys_.size(), StaleWord::kOnly);
  slots_.assign(keys_.size(), ReplicaCache::kNone);
  if (!training_) return;
  for (size_t r = 0; r < ranks(); ++r) {
    if (r == own()) continue;
    for (size_t place = keys_.begin_of(r); place < keys_.begin_of(r + 1); ++place) {
      const uint32_t slot = slots_[place] = kept.use(number, keys_.keys()[place]);
      if (slot == ReplicaCache::kNone) continue;
      const ReplicaCache::Facts& facts = kept.facts(slot);
      const uint32_t grown = facts.version - facts.state_version;
      const bool old =
          grown >= std::max(kLeastGrowth, UpdateVersion::age(facts.state_version) / kGrowth);
      words_[place] =
          facts.filled != 0 ? StaleWord::of(facts.version + facts.updates, old) : StaleWord::kNew;
    }
  }
}

// Runs after all replicas of the batch were found, so that no row of the batch evicts another.
void StaleExchange::take_kept() {
  if (!training_) return;
  ReplicaCache& kept = this->kept();
  kept.note_uses(keys_.size() - places_of(own()));
  for (size_t r = 0; r < ranks(); ++r) {
    if (r == own()) continue;
    for (size_t place = keys_.begin_of(r); place < keys_.begin_of(r + 1); ++place) {
      if (slots_[place] != ReplicaCache::kNone) continue;
      slots_[place] = kept.take(stale().number, keys_.keys()[place]);
      if (slots_[place] != ReplicaCache::kNone) words_[place] = StaleWord::kNew;
    }
  }
}

size_t StaleExchange::bytes_to(Leg leg, int to) const {
  const size_t r = static_cast<size_t>(to);
  switch (leg) {
    case Leg::kKeys:
      return OwnedExchange::bytes_to(leg, to) + StaleWord::bytes(places_of(r));
    case Leg::kAnswers:
      return ChosenKeys::bytes(asked(r));
    case Leg::kRows:
      return row_bytes(answers_[r]);
    case Leg::kPushes:
      return sizeof(int64_t) + ChosenKeys::bytes(places_of(r));
    case Leg::kGradients:
      return gradient_bytes(pushed_[r], evicted_to_[r].size());
    default:
      return 0;
  }
}

size_t StaleExchange::bytes_from(Leg leg, int from) const {
  const size_t r = static_cast<size_t>(from);
  switch (leg) {
    case Leg::kKeys:
      return OwnedExchange::bytes_from(leg, from) + StaleWord::bytes(asked(r));
    case Leg::kAnswers:
      return ChosenKeys::bytes(places_of(r));
    case Leg::kRows:
      return row_bytes(coming_[r]);
    case Leg::kPushes:
      return sizeof(int64_t) + ChosenKeys::bytes(asked(r));
    case Leg::kGradients:
      return gradient_bytes(their_pushes_[r], their_evicted_[r]);
    default:
      return 0;
  }
}

void StaleExchange::write_keys(int to, std::byte* message) const {
  OwnedExchange::write_keys(to, message);
  const size_t r = static_cast<size_t>(to), count = places_of(r);
  if (count == 0) return;
  std::memcpy(message + sent_[r].bytes(), words_of(r), count * sizeof(uint32_t));
}

void StaleExchange::take_answers(int from, const std::byte* message) {
  const size_t r = static_cast<size_t>(from);
  coming_[r].read(message, words_of(r), places_of(r));
}

void StaleExchange::keep(uint32_t slot, const float* row, uint32_t version, const float* state) {
  ReplicaCache& kept = this->kept();
  std::memcpy(kept.weights(slot), row, width() * sizeof(float));
  ReplicaCache::Facts& facts = kept.facts(slot);
  facts.version = version;
  facts.filled = 1;
  if (state != nullptr) {
    std::memcpy(kept.state(slot), state, state_floats() * sizeof(float));
    facts.state_version = version;
  }
  if (facts.updates == 0) return;
  // Applies the updates that the owner has not received again, in one step. A state that was not
  // replaced includes them already.
  if (state == nullptr) state_.assign(kept.state(slot), kept.state(slot) + state_floats());
  const float* sum = kept.sum(slot);
  const uint32_t begins[2] = {0, 1};
  std::byte* line = kept.line(slot);
  table_->shape().kernels->update(step_of_kept(), {&sum, nullptr, begins}, nullptr, 0, 1, &line);
  if (state == nullptr) std::copy(state_.begin(), state_.end(), kept.state(slot));
}

UpdateStep StaleExchange::step_of_kept() {
  UpdateStep step = table_->step_settings();
  step.layout = kept().layout();
  step.clock = table_->step() + 1;
  if (stale().learning_rate != 0.0f) step.learning_rate = stale().learning_rate;
  return step;
}

void StaleExchange::take_rows(const std::byte* const* messages) {
  ReplicaCache& kept = this->kept();
  rows_.resize(keys_.size());
  for (size_t r = 0; r < ranks(); ++r) {
    const ChosenKeys& arriving = coming_[r];
    const auto* versions = reinterpret_cast<const uint32_t*>(messages[r]);
    const auto* rows =
        reinterpret_cast<const float*>(messages[r] + StaleWord::bytes(arriving.kept));
    const float* states = rows + arriving.count * width();
    const size_t first = keys_.begin_of(r);
    for (size_t place = first; place < first + places_of(r); ++place) {
      const uint32_t slot = slots_[place];
      if (!arriving.has(place - first)) {
        rows_[place] = kept.weights(slot);
        continue;
      }
      rows_[place] = rows;
      if (slot != ReplicaCache::kNone) {
        const bool has_state = StaleWord::wants_state(words_[place]);
        keep(slot, rows, *versions++, has_state ? states : nullptr);
        rows_[place] = kept.weights(slot);
        if (has_state) states += state_floats();
      }
      rows += width();
    }
  }
}

void StaleExchange::push_all() { push_all_ = true; }

void StaleExchange::prepare_gradients(const std::vector<const Feature*>& features,
                                      const std::vector<const float*>& gradients,
                                      float learning_rate) {
  const IeeeFloatMode exact;
  const size_t count = keys_.size();
  const Kernels& kernels = *table_->shape().kernels;
  ReplicaCache& kept = this->kept();
  sums_.resize(count * width());
  kernels.sum(keys_.order_gradients(features, gradients, width()), width(), 0, count, sums_.data());
  if (learning_rate == learning_rate) stale().learning_rate = learning_rate;
  pushes_.resize(count * width());
  push_updates_.assign(count, 1);
  push_lookups_.assign(keys_.lookups(), keys_.lookups() + count);
  std::vector<const float*> rows;
  std::vector<uint32_t> begins{0};
  std::vector<std::byte*> lines;
  for (size_t r = 0; r < ranks(); ++r) {
    const size_t first = keys_.begin_of(r);
    pushed_[r].reset(places_of(r));
    for (size_t i = 0; i < places_of(r); ++i) {
      const size_t place = first + i;
      const float* gradient = sums_.data() + place * width();
      float* push = pushes_.data() + place * width();
      const uint32_t slot =
          r == own() ? ReplicaCache::kNone : kept.find(stale().number, keys_.keys()[place]);
      if (slot == ReplicaCache::kNone || kept.facts(slot).filled == 0) {
        std::memcpy(push, gradient, width() * sizeof(float));
        pushed_[r].choose(i, words_[place]);
        continue;
      }
      // It would spoil the sum of the finite ones.
      if (!std::isfinite(kernels.squares(gradient, width()))) {
        table_->add_updates(1, 1);
        continue;
      }
      rows.push_back(gradient);
      begins.push_back(static_cast<uint32_t>(rows.size()));
      lines.push_back(kept.line(slot));
      ReplicaCache::Facts& facts = kept.facts(slot);
      float* sum = kept.sum(slot);
      for (size_t j = 0; j < width(); ++j) sum[j] += gradient[j];
      facts.updates += 1;
      facts.lookups += keys_.lookups()[place];
      const uint32_t most = sharding().staleness.most_behind(UpdateVersion::age(facts.version));
      // The row was first kept in a later forward pass: its owner expects no counts.
      if (facts.updates <= most || !StaleWord::is_kept(words_[place])) continue;
      pushed_[r].choose(i, words_[place]);
      std::memcpy(push, sum, width() * sizeof(float));
      std::memset(sum, 0, width() * sizeof(float));
      push_updates_[place] = facts.updates;
      push_lookups_[place] = facts.lookups;
      facts.version += facts.updates;
      facts.updates = facts.lookups = 0;
    }
  }
  kernels.update(step_of_kept(), {rows.data(), nullptr, begins.data()}, nullptr, 0, rows.size(),
                 lines.data());
  std::vector<PendingGradient>& evicted = kept.evicted(stale().number);
  if (push_all_) kept.push_all(stale().number, &evicted);
  push_all_ = false;
  for (auto& to : evicted_to_) to.clear();
  for (PendingGradient& pending : evicted) {
    evicted_to_[static_cast<size_t>(sharding().owner_of(pending.key))].push_back(&pending);
  }
}

void StaleExchange::write_pushes(int to, std::byte* message) {
  const size_t r = static_cast<size_t>(to);
  const int64_t evicted = static_cast<int64_t>(evicted_to_[r].size());
  std::memcpy(message, &evicted, sizeof(evicted));
  pushed_[r].write(message + sizeof(evicted));
}

void StaleExchange::write_gradients(const std::vector<const Feature*>&,
                                    const std::vector<const float*>&, std::byte* const* messages) {
  for (size_t r = 0; r < ranks(); ++r) {
    const auto& evicted = evicted_to_[r];
    const size_t reported = pushed_[r].kept + evicted.size();
    auto* keys = reinterpret_cast<int64_t*>(messages[r]);
    auto* updates = reinterpret_cast<uint32_t*>(keys + evicted.size());
    uint32_t* lookups = updates + reported;
    auto* rows = reinterpret_cast<float*>(lookups + reported);
    for (size_t i = 0; i < places_of(r); ++i) {
      if (!pushed_[r].has(i)) continue;
      const size_t place = keys_.begin_of(r) + i;
      if (StaleWord::is_kept(words_[place])) {
        *updates++ = push_updates_[place];
        *lookups++ = push_lookups_[place];
      }
      std::memcpy(rows, pushes_.data() + place * width(), width() * sizeof(float));
      rows += width();
    }
    for (const PendingGradient* pending : evicted) {
      *keys++ = pending->key;
      *updates++ = pending->updates;
      *lookups++ = pending->lookups;
      std::memcpy(rows, pending->gradient.data(), width() * sizeof(float));
      rows += width();
    }
    evicted_to_[r].clear();
  }
  kept().evicted(stale().number).clear();
}

}  // namespace hotrow
