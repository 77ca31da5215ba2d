// The owner's part of ranks/stale_exchange.h.
#include <cstring>

#include "core/kernels/half.h"
#include "core/ranks/stale_exchange.h"

namespace hotrow {
namespace {

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

void StaleExchange::take_keys(int from, const std::byte* message) {
  OwnedExchange::take_keys(from, message);
  const size_t r = static_cast<size_t>(from);
  their_words_[r] = reinterpret_cast<const uint32_t*>(message + received_[r].bytes());
  UpdateCounts& counts = stale().counts;
  answers_[r].reset(asked(r));
  sent_keys_[r].clear();
  sent_lookups_[r].clear();
  for (size_t i = 0; i < asked(r); ++i) {
    const uint32_t word = their_words_[r][i];
    const int64_t key = asked_[r][i];
    if (StaleWord::is_kept(word)) {
      const uint32_t* now = word == StaleWord::kNew ? nullptr : counts.find(key, true);
      if (now != nullptr &&
          sharding().staleness.may_stay(StaleWord::behind(word, *now), UpdateVersion::age(*now))) {
        continue;
      }
      counts.watch(key);
    }
    answers_[r].choose(i, word);
    sent_keys_[r].push_back(key);
    sent_lookups_[r].push_back(lookups_[r][i]);
  }
}

void StaleExchange::write_answers(int to, std::byte* message) {
  answers_[static_cast<size_t>(to)].write(message);
}

void StaleExchange::look_up(std::byte* const* messages, OwnerCall* call) {
  for (size_t r = 0; r < ranks(); ++r) {
    std::byte* const rows = messages[r] + StaleWord::bytes(answers_[r].kept);
    call->add(number_, table_->name().c_str(), sent_keys_[r].data(), sent_keys_[r].size(),
              sent_lookups_[r].data(), reinterpret_cast<float*>(rows));
  }
}

void StaleExchange::looked_up(const std::byte* const* lines, std::byte* const* messages) {
  UpdateCounts& counts = stale().counts;
  const LineLayout& layout = table_->shape().layout;
  size_t sent = 0;
  for (size_t r = 0; r < ranks(); ++r) {
    auto* versions = reinterpret_cast<uint32_t*>(messages[r]);
    auto* states = reinterpret_cast<float*>(messages[r] + StaleWord::bytes(answers_[r].kept)) +
                   answers_[r].count * width();
    for (size_t i = 0; i < asked(r); ++i) {
      if (!answers_[r].has(i)) continue;
      if (StaleWord::is_kept(their_words_[r][i])) {
        const uint32_t* now = counts.find(asked_[r][i], false);
        *versions++ = now == nullptr ? 0 : *now;
      }
      if (StaleWord::wants_state(their_words_[r][i])) {
        read_state(layout, lines[sent], states);
        states += state_floats();
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
  their_pushes_[r].read(message + sizeof(evicted), their_words_[r], asked(r));
}

void StaleExchange::take_gradients(const std::byte* const* messages) {
  UpdateCounts& counts = stale().counts;
  for (size_t r = 0; r < ranks(); ++r) {
    const size_t reported = their_pushes_[r].kept + their_evicted_[r];
    const auto* evicted = reinterpret_cast<const int64_t*>(messages[r]);
    const auto* updates = reinterpret_cast<const uint32_t*>(evicted + their_evicted_[r]);
    const uint32_t* lookups = updates + reported;
    gradients_[r] = reinterpret_cast<const float*>(lookups + reported);
    pushed_keys_[r].clear();
    pushed_lookups_[r].clear();
    const auto add = [&](int64_t key, uint32_t own_updates, uint32_t own_lookups) {
      pushed_keys_[r].push_back(key);
      pushed_lookups_[r].push_back(own_lookups);
      if (uint32_t* count = counts.find(key, false)) *count += own_updates;
    };
    for (size_t i = 0; i < asked(r); ++i) {
      if (!their_pushes_[r].has(i)) continue;
      if (StaleWord::is_kept(their_words_[r][i])) {
        add(asked_[r][i], *updates++, *lookups++);
      } else {
        add(asked_[r][i], 1, lookups_[r][i]);
      }
    }
    for (size_t i = 0; i < their_evicted_[r]; ++i) add(evicted[i], *updates++, *lookups++);
  }
}

void StaleExchange::add_gradients(OwnerCall* call) {
  for (size_t r = 0; r < ranks(); ++r) {
    call->add(number_, table_->name().c_str(), pushed_keys_[r].data(), pushed_keys_[r].size(),
              pushed_lookups_[r].data(), nullptr);
    call->gradients.push_back(gradients_[r]);
  }
}

}  // namespace hotrow
