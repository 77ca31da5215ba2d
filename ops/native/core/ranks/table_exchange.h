// The messages of one table between the ranks of a call: the table's input and output dispatcher
// (docs/design/0009-ranks.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/executor.h"
#include "core/kernels/feature.h"
#include "core/table/table.h"

namespace hotrow {

// The exchanges of a step. Each is one all-to-all for all tables of the call.
enum class Leg : int {
  kKeys = 0,       // home -> owner
  kAnswers = 1,    // owner -> home, with staleness: which rows come
  kRows = 2,       // owner -> home
  kPushes = 3,     // home -> owner, with staleness: which gradients come
  kGradients = 4,  // home -> owner
  kSums = 5,       // between the owners of a row: their sums
};
constexpr size_t kLegs = 6;

// The lookups of this rank in its own part of the tables, for itself and other ranks.
struct OwnerCall {
  std::vector<Feature> features;
  std::vector<size_t> table_of;
  std::vector<float*> outputs;          // of each feature; null: not needed
  std::vector<const float*> gradients;  // of each feature, in backward

  // Adds a feature of distinct keys; each key stands for a number of lookups.
  void add(size_t table, const char* name, const int64_t* keys, size_t count,
           const uint32_t* lookups, float* output) {
    Feature feature;
    feature.name = name;
    feature.keys = keys;
    feature.segments.keys = feature.segments.samples = count;
    feature.counts = lookups;
    features.push_back(feature);
    table_of.push_back(table);
    outputs.push_back(output);
  }
};

// R ranks, D columns of a whole row. A step calls the functions in the order of this class, those
// marked [R] once for each rank. `message` is where the part of this table begins in the message to
// or from a rank, at a multiple of 8 bytes. Reuses its memory from step to step.
class TableExchange {
 public:
  // number: the table's in the call.
  static std::unique_ptr<TableExchange> make(Table& table, size_t number);
  virtual ~TableExchange() = default;

  Table& table() const { return *table_; }

  // Whether rows may lag behind their owners: then there are answers and pushes.
  virtual bool is_stale() const { return false; }
  // Whether the calls that follow train.
  virtual void set_training(bool) {}
  // The next backward pass sends all pending gradients to their owners.
  virtual void push_all() {}

  // --- at home ----------------------------------------------------------------------------------
  // Takes the keys of this rank's batch; `features` are this table's. They must live until the keys
  // are written. Fails when a key is out of the vocabulary or row_splits are wrong.
  virtual void collect(const std::vector<const Feature*>& features) = 0;
  // With staleness: called before all tables of the call collect, and after, one table after the
  // other.
  virtual void begin_batch() {}
  virtual void take_kept() {}
  // How many numbers each rank sends to each other before keys; the same on all ranks. features:
  // this table's in the call.
  virtual size_t facts(size_t features) const = 0;
  virtual void write_facts(int to, int64_t* facts) const = 0;   // [R]
  virtual void read_facts(int from, const int64_t* facts) = 0;  // [R]

  // Bytes of a leg that this rank sends to, or receives from, another. Valid for keys after
  // `read_facts`, else after `take_keys`.
  virtual size_t bytes_to(Leg leg, int to) const = 0;
  virtual size_t bytes_from(Leg leg, int from) const = 0;

  virtual void write_keys(int to, std::byte* message) const = 0;  // [R]

  // --- at the owner -----------------------------------------------------------------------------
  // Received messages must live until the backward pass.
  virtual void take_keys(int from, const std::byte* message) = 0;  // [R]
  virtual void write_answers(int, std::byte*) {}                   // [R]
  virtual void take_answers(int, const std::byte*) {}              // [R], at home
  // When all keys are there, for an owner that looks them up elsewhere: adds the received keys, by
  // rank or, where batches travel, by feature and then by rank.
  virtual void list_received(OwnerCall* call) {
    const std::vector<std::byte*> nowhere(ranks(), nullptr);
    look_up(nowhere.data(), call);
  }
  // The distinct keys that this rank sent to another; 0 where batches travel.
  virtual size_t distinct_keys_to(int) const { return 0; }
  // Called when all keys are there: adds what to look up. messages: (R), where the rows for each
  // rank go.
  virtual void look_up(std::byte* const* messages, OwnerCall* call) = 0;
  // With staleness: takes the lines of these keys, in their order; null outside of training.
  virtual void looked_up(const std::byte* const*, std::byte* const*) {}

  // --- at home ----------------------------------------------------------------------------------
  // messages: (R), received from each rank; they must live until the last call of `pool`.
  virtual void take_rows(const std::byte* const* messages) = 0;
  // Pooled values of outputs [first, last) of a feature, the f-th of this table, with all D
  // columns. Safe from several threads.
  virtual void pool(size_t f, const Feature& feature, size_t first, size_t last,
                    float* pooled) const = 0;

  // --- backward, at home ------------------------------------------------------------------------
  // With staleness. learning_rate: of this step; NaN: that of the table's options.
  virtual void prepare_gradients(const std::vector<const Feature*>&,
                                 const std::vector<const float*>&, float) {}
  virtual void write_pushes(int, std::byte*) {}       // [R]
  virtual void take_pushes(int, const std::byte*) {}  // [R], at the owner
  // features: the same as in `collect`; gradients[f]: (outputs of f, D). messages: (R).
  virtual void write_gradients(const std::vector<const Feature*>& features,
                               const std::vector<const float*>& gradients,
                               std::byte* const* messages) = 0;
  // --- backward, at the owner -------------------------------------------------------------------
  // messages: (R), received from each rank; they live until the local backward pass is done.
  virtual void take_gradients(const std::byte* const* messages) = 0;
  virtual void write_sums(int, std::byte*) {}  // [R]
  virtual void take_sums(const std::byte* const*) {}
  // Adds the gradients of the features of `look_up`, in their order; with staleness, the features,
  // too.
  virtual void add_gradients(OwnerCall* call) = 0;

 protected:
  TableExchange(Table& table, size_t number) : table_(&table), number_(number) {}
  const Sharding& sharding() const { return table_->sharding(); }
  size_t ranks() const { return static_cast<size_t>(sharding().size()); }
  size_t own() const { return static_cast<size_t>(sharding().rank()); }
  size_t width() const { return sharding().width; }

  Table* table_;
  size_t number_;
};

}  // namespace hotrow
