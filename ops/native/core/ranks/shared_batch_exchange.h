// Schemes in which every rank receives all samples: kColumn and kRowBroadcast.
#pragma once

#include <vector>

#include "core/ranks/batch_message.h"
#include "core/ranks/table_exchange.h"

namespace hotrow {

// Keys, row splits and weights go to all ranks; pooled values come back, and gradients of pooled
// values go out.
class SharedBatchExchange : public TableExchange {
 public:
  SharedBatchExchange(Table& table, size_t number);
  void collect(const std::vector<const Feature*>& features) override;
  size_t facts(size_t features) const override { return features * BatchMessage::kFacts; }
  void write_facts(int to, int64_t* facts) const override;
  void read_facts(int from, const int64_t* facts) override;
  size_t bytes_to(Leg leg, int to) const override;
  size_t bytes_from(Leg leg, int from) const override;
  void write_keys(int to, std::byte* message) const override;
  void take_keys(int from, const std::byte* message) override;
  void take_rows(const std::byte* const* messages) override;
  void take_gradients(const std::byte* const* messages) override;
  void add_gradients(OwnerCall* call) override;

 protected:
  // The number of columns that a rank pools.
  virtual size_t columns(size_t rank) const = 0;

  BatchMessage own_;
  std::vector<size_t> first_output_;     // (F + 1) of each feature, in the batch
  std::vector<BatchMessage> batches_;    // (R) of each rank
  std::vector<const float*> pooled_;     // (R) by each rank, of the own batch
  std::vector<const float*> gradients_;  // (R) of each rank's batch
};

// A rank holds some columns of all rows, and pools them for all samples.
class ColumnExchange : public SharedBatchExchange {
 public:
  using SharedBatchExchange::SharedBatchExchange;
  void look_up(std::byte* const* messages, OwnerCall* call) override;
  void pool(size_t f, const Feature& feature, size_t first, size_t last,
            float* pooled) const override;
  void write_gradients(const std::vector<const Feature*>& features,
                       const std::vector<const float*>& gradients,
                       std::byte* const* messages) override;

 protected:
  size_t columns(size_t rank) const override { return sharding().columns(static_cast<int>(rank)); }
};

// A rank holds whole rows of some keys, and pools them for all samples. Partial sums are added at
// home, in the order of the ranks.
class PartialSumExchange : public SharedBatchExchange {
 public:
  using SharedBatchExchange::SharedBatchExchange;
  void look_up(std::byte* const* messages, OwnerCall* call) override;
  void pool(size_t f, const Feature& feature, size_t first, size_t last,
            float* pooled) const override;
  void write_gradients(const std::vector<const Feature*>& features,
                       const std::vector<const float*>& gradients,
                       std::byte* const* messages) override;

 protected:
  size_t columns(size_t) const override { return width(); }

 private:
  // The keys that this rank owns of a feature of another rank's batch. Values are their weighted
  // sums; the weights are already divided.
  struct OwnedPart {
    std::vector<int64_t> keys;
    std::vector<int64_t> row_splits;
    std::vector<float> weights;
  };
  static bool weighted(const Segments& segments);
  Feature part_of(const Feature& feature, OwnedPart* part) const;

  std::vector<OwnedPart> parts_;  // (F x R)
};

}  // namespace hotrow
