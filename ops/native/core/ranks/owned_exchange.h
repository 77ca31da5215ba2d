// Rows that one rank owns: schemes kRow and kTable.
#pragma once

#include <vector>

#include "core/ranks/distinct_keys.h"
#include "core/ranks/table_exchange.h"

namespace hotrow {

// Sends distinct keys to their owners. Rows come back and are pooled at home. There gradients are
// summed per distinct key before they go the same way.
class OwnedExchange : public TableExchange {
 public:
  OwnedExchange(Table& table, size_t number);
  void collect(const std::vector<const Feature*>& features) override;
  size_t facts(size_t) const override { return 2; }
  void write_facts(int to, int64_t* facts) const override;
  void read_facts(int from, const int64_t* facts) override;
  size_t bytes_to(Leg leg, int to) const override;
  size_t bytes_from(Leg leg, int from) const override;
  void write_keys(int to, std::byte* message) const override;
  void take_keys(int from, const std::byte* message) override;
  size_t distinct_keys_to(int to) const override { return places_of(static_cast<size_t>(to)); }
  void look_up(std::byte* const* messages, OwnerCall* call) override;
  void take_rows(const std::byte* const* messages) override;
  void pool(size_t f, const Feature& feature, size_t first, size_t last,
            float* pooled) const override;
  void write_gradients(const std::vector<const Feature*>& features,
                       const std::vector<const float*>& gradients,
                       std::byte* const* messages) override;
  void take_gradients(const std::byte* const* messages) override;
  void add_gradients(OwnerCall* call) override;

 protected:
  size_t places_of(size_t rank) const { return keys_.begin_of(rank + 1) - keys_.begin_of(rank); }

  DistinctKeys keys_;
  std::vector<KeyMessage> sent_, received_;     // (R)
  std::vector<const int64_t*> asked_;           // (R) keys of each rank
  std::vector<std::vector<uint32_t>> lookups_;  // (R) of them
  std::vector<const float*> rows_;              // (U) by place
  std::vector<const float*> gradients_;         // (R) of each rank's keys
};

}  // namespace hotrow
