// Rows that every rank holds: scheme kReplicated.
#pragma once

#include <vector>

#include "core/ranks/distinct_keys.h"
#include "core/ranks/table_exchange.h"

namespace hotrow {

// All ranks look up the union of their distinct keys, so that all insert and admit the same keys;
// the union has the same order on all ranks. Each rank sums the gradients of a slice of the union
// and sends the sums to all. This is a reduce-scatter that sends only rows of a rank's own keys,
// then an all-gather.
class ReplicatedExchange : public TableExchange {
 public:
  ReplicatedExchange(Table& table, size_t number);
  void collect(const std::vector<const Feature*>& features) override;
  size_t facts(size_t) const override { return 2; }
  void write_facts(int to, int64_t* facts) const override;
  void read_facts(int from, const int64_t* facts) override;
  size_t bytes_to(Leg leg, int to) const override;
  size_t bytes_from(Leg leg, int from) const override;
  void write_keys(int to, std::byte* message) const override;
  void take_keys(int from, const std::byte* message) override;
  void list_received(OwnerCall* call) override;
  size_t distinct_keys_to(int) const override { return keys_.size(); }
  void look_up(std::byte* const* messages, OwnerCall* call) override;
  void take_rows(const std::byte* const*) override {}
  void pool(size_t f, const Feature& feature, size_t first, size_t last,
            float* pooled) const override;
  void write_gradients(const std::vector<const Feature*>& features,
                       const std::vector<const float*>& gradients,
                       std::byte* const* messages) override;
  void take_gradients(const std::byte* const* messages) override;
  void write_sums(int to, std::byte* message) override;
  void take_sums(const std::byte* const* messages) override;
  void add_gradients(OwnerCall* call) override;

 private:
  // The first row of a rank's slice of the union; rank <= R.
  size_t slice(size_t rank) const { return union_.size() * rank / ranks(); }
  size_t slice_of(int32_t row) const;
  void count_rows();

  DistinctKeys keys_;
  KeyMessage sent_;
  std::vector<KeyMessage> received_;   // (R)
  std::vector<int64_t> all_keys_;      // of rank 0, then rank 1, ...
  std::vector<uint32_t> all_lookups_;  // the same
  std::vector<size_t> first_of_;       // (R + 1) of each rank, there
  Unique union_;                       // V keys; inverse: of all_keys_
  std::vector<uint32_t> lookups_;      // (V)
  std::vector<float> rows_;            // (V, D)
  std::vector<const float*> row_of_;   // by place of the own keys
  std::vector<size_t> sent_rows_;      // (R) own keys in the slice of each rank
  std::vector<size_t> received_rows_;  // (R) keys of each rank in the own slice
  std::vector<float> sums_;            // (V, D)
};

}  // namespace hotrow
