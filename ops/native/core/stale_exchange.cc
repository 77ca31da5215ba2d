#include "core/stale_exchange.h"

#include <algorithm>
#include <cstring>

#include "core/float_mode.h"
#include "core/half.h"

namespace hotrow {
namespace {

size_t padded(size_t bytes) { return (bytes + 7) / 8 * 8; }
size_t mask_bytes(size_t keys) { return padded((keys + 7) / 8); }

// The state of a line as floats: vectors, then scalars.
void read_state(const LineLayout& layout, const std::byte* line, float* out) {
  const std::byte* from = line + sizeof(RowHeader) + layout.state_offset();
  const size_t values = layout.vectors * layout.width;
  if (layout.state == RowType::kFloat32) {
    std::memcpy(out, from, values * sizeof(float));
  } else {
    for (size_t i = 0; i < values; ++i) {
      uint16_t half;
      std::memcpy(&half, from + i * sizeof(half), sizeof(half));
      out[i] =
          layout.state == RowType::kBfloat16 ? float_of_bfloat16(half) : float_of_float16(half);
    }
  }
  std::memcpy(out + values, line + sizeof(RowHeader) + layout.scalars_offset(),
              layout.scalars * sizeof(float));
}

}  // namespace

void StaleExchange::Chosen::reset(size_t keys) {
  bits.assign(mask_bytes(keys), 0);
  count = 0;
}

void StaleExchange::Chosen::choose(size_t key) {
  bits[key / 8] |= static_cast<uint8_t>(1u << (key % 8));
  ++count;
}

void StaleExchange::Chosen::read(const std::byte* from, size_t keys) {
  bits.resize(mask_bytes(keys));
  if (!bits.empty()) std::memcpy(bits.data(), from, bits.size());
  count = 0;
  for (uint8_t byte : bits) count += static_cast<size_t>(__builtin_popcount(byte));
}

StaleExchange::StaleExchange(Table& table, size_t number)
    : OwnedExchange(table, number),
      evicted_to_(ranks()),
      coming_(ranks()),
      pushed_(ranks()),
      news_(ranks()),
      their_versions_(ranks()),
      answers_(ranks()),
      their_pushes_(ranks()),
      their_news_(ranks()),
      sent_keys_(ranks()),
      pushed_keys_(ranks()),
      sent_lookups_(ranks()),
      their_evicted_(ranks()),
      pushed_lookups_(ranks()) {}

size_t StaleExchange::row_bytes(size_t count, size_t news) const {
  const size_t floats = count * width() + news * (table_->shape().layout.vectors * width() +
                                                  table_->shape().layout.scalars);
  return padded(count * sizeof(uint32_t)) + floats * sizeof(float);
}

size_t StaleExchange::gradient_bytes(size_t count, size_t evicted) const {
  return evicted * sizeof(int64_t) + (count + evicted) * (2 * sizeof(uint32_t)) +
         (count + evicted) * width() * sizeof(float);
}

// --- at home ------------------------------------------------------------------------------------

void StaleExchange::begin_batch() { kept().begin_batch(); }

void StaleExchange::collect(const std::vector<const Feature*>& features) {
  OwnedExchange::collect(features);
  KeptRows& kept = this->kept();
  const size_t number = stale().number;
  versions_.assign(keys_.size(), kOnly);
  slots_.assign(keys_.size(), KeptRows::kNone);
  std::fill(news_.begin(), news_.end(), 0);
  if (!training_) return;
  for (size_t r = 0; r < ranks(); ++r) {
    if (r == own()) continue;
    for (size_t place = keys_.begin_of(r); place < keys_.begin_of(r + 1); ++place) {
      const uint32_t slot = slots_[place] = kept.use(number, keys_.keys()[place]);
      if (slot == KeptRows::kNone) continue;
      const KeptRows::Facts& facts = kept.facts(slot);
      versions_[place] = facts.filled != 0 ? facts.version : kNew;
      news_[r] += facts.filled == 0;
    }
  }
}

// After what is there was found, so that no row of the batch gives way to another one.
void StaleExchange::take_kept() {
  if (!training_) return;
  KeptRows& kept = this->kept();
  kept.note_uses(keys_.size() - places_of(own()));
  for (size_t r = 0; r < ranks(); ++r) {
    if (r == own()) continue;
    for (size_t place = keys_.begin_of(r); place < keys_.begin_of(r + 1); ++place) {
      if (slots_[place] != KeptRows::kNone) continue;
      slots_[place] = kept.take(stale().number, keys_.keys()[place]);
      if (slots_[place] == KeptRows::kNone) continue;
      versions_[place] = kNew;
      ++news_[r];
    }
  }
}

size_t StaleExchange::bytes_to(Leg leg, int to) const {
  const size_t r = static_cast<size_t>(to);
  switch (leg) {
    case Leg::kKeys:
      return OwnedExchange::bytes_to(leg, to) + padded(places_of(r) * sizeof(uint32_t));
    case Leg::kAnswers:
      return mask_bytes(asked(r));
    case Leg::kRows:
      return row_bytes(answers_[r].count, their_news_[r]);
    case Leg::kPushes:
      return sizeof(int64_t) + mask_bytes(places_of(r));
    case Leg::kGradients:
      return gradient_bytes(pushed_[r].count, evicted_to_[r].size());
    default:
      return 0;
  }
}

size_t StaleExchange::bytes_from(Leg leg, int from) const {
  const size_t r = static_cast<size_t>(from);
  switch (leg) {
    case Leg::kKeys:
      return OwnedExchange::bytes_from(leg, from) + padded(asked(r) * sizeof(uint32_t));
    case Leg::kAnswers:
      return mask_bytes(places_of(r));
    case Leg::kRows:
      return row_bytes(coming_[r].count, news_[r]);
    case Leg::kPushes:
      return sizeof(int64_t) + mask_bytes(asked(r));
    case Leg::kGradients:
      return gradient_bytes(their_pushes_[r].count, their_evicted_[r]);
    default:
      return 0;
  }
}

void StaleExchange::write_keys(int to, std::byte* message) const {
  OwnedExchange::write_keys(to, message);
  const size_t r = static_cast<size_t>(to), count = places_of(r);
  if (count == 0) return;
  std::memcpy(message + sent_[r].bytes(), versions_.data() + keys_.begin_of(r),
              count * sizeof(uint32_t));
}

void StaleExchange::take_answers(int from, const std::byte* message) {
  const size_t r = static_cast<size_t>(from);
  coming_[r].read(message, places_of(r));
}

void StaleExchange::keep(uint32_t slot, size_t place, const float* row, uint32_t version,
                         const float* state) {
  KeptRows& kept = this->kept();
  std::memcpy(kept.weights(slot), row, width() * sizeof(float));
  KeptRows::Facts& facts = kept.facts(slot);
  facts.version = version;
  facts.filled = 1;
  if (versions_[place] == kNew) {
    std::memcpy(kept.state(slot), state, kept.state_floats() * sizeof(float));
    return;
  }
  if (facts.updates == 0) return;
  // What the owner does not know yet is done again, in one step.
  const float* sum = kept.sum(slot);
  const uint32_t begins[2] = {0, 1};
  std::byte* line = kept.line(slot);
  table_->shape().kernels->update(step_of_kept(), {&sum, nullptr, begins}, nullptr, 0, 1, &line);
}

UpdateStep StaleExchange::step_of_kept() {
  UpdateStep step = table_->step_settings();
  step.layout = kept().layout();
  step.clock = table_->step() + 1;
  if (stale().learning_rate != 0.0f) step.learning_rate = stale().learning_rate;
  return step;
}

void StaleExchange::take_rows(const std::byte* const* messages) {
  KeptRows& kept = this->kept();
  rows_.resize(keys_.size());
  for (size_t r = 0; r < ranks(); ++r) {
    const Chosen& coming = coming_[r];
    const auto* versions = reinterpret_cast<const uint32_t*>(messages[r]);
    const auto* rows =
        reinterpret_cast<const float*>(messages[r] + padded(coming.count * sizeof(uint32_t)));
    const float* states = rows + coming.count * width();
    const size_t first = keys_.begin_of(r);
    for (size_t i = 0; i < places_of(r); ++i) {
      const uint32_t slot = slots_[first + i];
      if (!coming.has(i)) {
        rows_[first + i] = kept.weights(slot);
        continue;
      }
      rows_[first + i] = rows;
      if (slot != KeptRows::kNone) {
        keep(slot, first + i, rows, *versions, states);
        rows_[first + i] = kept.weights(slot);
        if (versions_[first + i] == kNew) states += kept.state_floats();
      }
      rows += width();
      ++versions;
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
  KeptRows& kept = this->kept();
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
          r == own() ? KeptRows::kNone : kept.find(stale().number, keys_.keys()[place]);
      if (slot == KeptRows::kNone || kept.facts(slot).filled == 0) {
        std::memcpy(push, gradient, width() * sizeof(float));
        pushed_[r].choose(i);
        continue;
      }
      rows.push_back(gradient);
      begins.push_back(static_cast<uint32_t>(rows.size()));
      lines.push_back(kept.line(slot));
      KeptRows::Facts& facts = kept.facts(slot);
      float* sum = kept.sum(slot);
      for (size_t j = 0; j < width(); ++j) sum[j] += gradient[j];
      facts.updates += 1;
      facts.lookups += keys_.lookups()[place];
      if (facts.updates <= sharding().staleness.updates) continue;
      pushed_[r].choose(i);
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
  const std::vector<uint8_t>& bits = pushed_[r].bits;
  if (!bits.empty()) std::memcpy(message + sizeof(evicted), bits.data(), bits.size());
}

void StaleExchange::write_gradients(const std::vector<const Feature*>&,
                                    const std::vector<const float*>&, std::byte* const* messages) {
  for (size_t r = 0; r < ranks(); ++r) {
    const auto& evicted = evicted_to_[r];
    const size_t total = pushed_[r].count + evicted.size();
    auto* keys = reinterpret_cast<int64_t*>(messages[r]);
    auto* updates = reinterpret_cast<uint32_t*>(keys + evicted.size());
    uint32_t* lookups = updates + total;
    auto* rows = reinterpret_cast<float*>(lookups + total);
    for (size_t i = 0; i < places_of(r); ++i) {
      if (!pushed_[r].has(i)) continue;
      const size_t place = keys_.begin_of(r) + i;
      *updates++ = push_updates_[place];
      *lookups++ = push_lookups_[place];
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

// --- at the owner -------------------------------------------------------------------------------

void StaleExchange::take_keys(int from, const std::byte* message) {
  OwnedExchange::take_keys(from, message);
  const size_t r = static_cast<size_t>(from);
  their_versions_[r] = reinterpret_cast<const uint32_t*>(message + received_[r].bytes());
  UpdateCounts& counts = stale().counts;
  answers_[r].reset(asked(r));
  their_news_[r] = 0;
  sent_keys_[r].clear();
  sent_lookups_[r].clear();
  for (size_t i = 0; i < asked(r); ++i) {
    const uint32_t version = their_versions_[r][i];
    const int64_t key = asked_[r][i];
    if (version == kNew) {
      counts.watch(key);
      ++their_news_[r];
    } else if (version != kOnly) {
      const uint32_t* now = counts.find(key, true);
      // Differences, since counts may wrap.
      if (now != nullptr && static_cast<int32_t>(*now - version) <=
                                static_cast<int32_t>(sharding().staleness.updates)) {
        continue;
      }
      counts.watch(key);
    }
    answers_[r].choose(i);
    sent_keys_[r].push_back(key);
    sent_lookups_[r].push_back(lookups_[r][i]);
  }
}

void StaleExchange::write_answers(int to, std::byte* message) {
  const std::vector<uint8_t>& bits = answers_[static_cast<size_t>(to)].bits;
  if (!bits.empty()) std::memcpy(message, bits.data(), bits.size());
}

void StaleExchange::look_up(std::byte* const* messages, OwnerCall* call) {
  for (size_t r = 0; r < ranks(); ++r) {
    std::byte* const rows = messages[r] + padded(answers_[r].count * sizeof(uint32_t));
    call->add(number_, table_->name().c_str(), sent_keys_[r].data(), sent_keys_[r].size(),
              sent_lookups_[r].data(), reinterpret_cast<float*>(rows));
  }
}

void StaleExchange::looked_up(const std::byte* const* lines, std::byte* const* messages) {
  UpdateCounts& counts = stale().counts;
  const LineLayout& layout = table_->shape().layout;
  const size_t floats = layout.vectors * layout.width + layout.scalars;
  size_t sent = 0;
  for (size_t r = 0; r < ranks(); ++r) {
    auto* versions = reinterpret_cast<uint32_t*>(messages[r]);
    auto* states =
        reinterpret_cast<float*>(messages[r] + padded(answers_[r].count * sizeof(uint32_t))) +
        answers_[r].count * width();
    for (size_t i = 0; i < asked(r); ++i) {
      if (!answers_[r].has(i)) continue;
      const uint32_t* now = counts.find(asked_[r][i], false);
      *versions++ = now == nullptr ? 0 : *now;
      if (their_versions_[r][i] == kNew) {
        read_state(layout, lines[sent], states);
        states += floats;
      }
      ++sent;
    }
  }
}

void StaleExchange::take_pushes(int from, const std::byte* message) {
  const size_t r = static_cast<size_t>(from);
  int64_t evicted;
  std::memcpy(&evicted, message, sizeof(evicted));
  their_evicted_[r] = static_cast<size_t>(evicted);
  their_pushes_[r].read(message + sizeof(evicted), asked(r));
}

void StaleExchange::take_gradients(const std::byte* const* messages) {
  UpdateCounts& counts = stale().counts;
  for (size_t r = 0; r < ranks(); ++r) {
    const size_t total = their_pushes_[r].count + their_evicted_[r];
    const auto* evicted = reinterpret_cast<const int64_t*>(messages[r]);
    const auto* updates = reinterpret_cast<const uint32_t*>(evicted + their_evicted_[r]);
    pushed_lookups_[r] = updates + total;
    gradients_[r] = reinterpret_cast<const float*>(updates + 2 * total);
    std::vector<int64_t>& keys = pushed_keys_[r];
    keys.clear();
    for (size_t i = 0; i < asked(r); ++i) {
      if (their_pushes_[r].has(i)) keys.push_back(asked_[r][i]);
    }
    keys.insert(keys.end(), evicted, evicted + their_evicted_[r]);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (uint32_t* count = counts.find(keys[i], false)) *count += updates[i];
    }
  }
}

void StaleExchange::add_gradients(OwnerCall* call) {
  for (size_t r = 0; r < ranks(); ++r) {
    call->add(number_, table_->name().c_str(), pushed_keys_[r].data(), pushed_keys_[r].size(),
              pushed_lookups_[r], nullptr);
    call->gradients.push_back(gradients_[r]);
  }
}

}  // namespace hotrow
