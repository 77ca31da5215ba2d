// Rows that one rank has, of which others keep hot ones for a while: bounded staleness.
#pragma once

#include <vector>

#include "core/kept_rows.h"
#include "core/owned_exchange.h"

namespace hotrow {

// After HET. A kept row is read as it is while its owner has counted at most s updates since it
// came, not counting the own; the owner looks at that for each batch and sends those rows alone
// that lag further. Own gradients are applied to the kept row at once and summed; the owner gets
// the sum after s + 1 updates, or when the row gives way to a hotter one. A step of a rank is an
// update. Everything of a row that nobody keeps goes as without staleness.
//
// Messages to each rank beside those of OwnedExchange:
// keys: [KeyMessage | version of the kept row, or kOnly, kNew: n x uint32]
// answers: [a bit for each of these keys: its row comes]
// rows: [updates at the owner: m x uint32 | m x D | state of those that were kNew]
// pushes: [evicted rows: e, an int64 | a bit for each key: its gradient comes]
// gradients: [e keys | updates, lookups: each (m + e) x uint32 | (m + e) x D]
class StaleExchange : public OwnedExchange {
 public:
  StaleExchange(Table& table, size_t number);
  bool is_stale() const override { return true; }
  void begin_batch() override;
  void collect(const std::vector<const Feature*>& features) override;
  void take_kept() override;
  size_t bytes_to(Leg leg, int to) const override;
  size_t bytes_from(Leg leg, int from) const override;
  void write_keys(int to, std::byte* message) const override;
  void take_keys(int from, const std::byte* message) override;
  void write_answers(int to, std::byte* message) override;
  void take_answers(int from, const std::byte* message) override;
  void look_up(std::byte* const* messages, OwnerCall* call) override;
  void looked_up(const std::byte* const* lines, std::byte* const* messages) override;
  void take_rows(const std::byte* const* messages) override;
  void prepare_gradients(const std::vector<const Feature*>& features,
                         const std::vector<const float*>& gradients, float learning_rate) override;
  void write_pushes(int to, std::byte* message) override;
  void take_pushes(int from, const std::byte* message) override;
  void write_gradients(const std::vector<const Feature*>& features,
                       const std::vector<const float*>& gradients,
                       std::byte* const* messages) override;
  void take_gradients(const std::byte* const* messages) override;
  void add_gradients(OwnerCall* call) override;
  // Without kept rows, for lookups that do not train: they read what the owners have.
  void set_training(bool training) override { training_ = training; }
  void push_all() override;

 private:
  static constexpr uint32_t kOnly = 0xffffffffu;  // once
  static constexpr uint32_t kNew = 0xfffffffeu;   // to be kept, with its state

  // Of one direction to or from a rank. n keys, m of them chosen by a bit each.
  struct Chosen {
    std::vector<uint8_t> bits;
    size_t count = 0;  // m
    void reset(size_t keys);
    void choose(size_t key);
    bool has(size_t key) const { return (bits[key / 8] >> (key % 8) & 1) != 0; }
    void read(const std::byte* from, size_t keys);
  };

  size_t asked(size_t rank) const { return static_cast<size_t>(received_[rank].keys); }
  size_t row_bytes(size_t count, size_t news) const;
  size_t gradient_bytes(size_t count, size_t evicted) const;
  StaleState& stale() { return *table_->stale(); }
  KeptRows& kept() { return *stale().kept; }
  UpdateStep step_of_kept();
  void keep(uint32_t slot, size_t place, const float* row, uint32_t version, const float* state);

  bool training_ = true;
  bool push_all_ = false;
  // At home, by place.
  std::vector<uint32_t> versions_, slots_;
  std::vector<std::vector<PendingGradient*>> evicted_to_;  // (R)
  std::vector<Chosen> coming_, pushed_;                    // (R)
  std::vector<size_t> news_;                               // (R)
  std::vector<float> sums_;                                // (U, D) this step's
  std::vector<float> pushes_;                              // (U, D) what is pushed, by place
  std::vector<uint32_t> push_updates_, push_lookups_;      // (U)
  // At the owner, of each rank.
  std::vector<const uint32_t*> their_versions_;
  std::vector<Chosen> answers_, their_pushes_;
  std::vector<size_t> their_news_;
  std::vector<std::vector<int64_t>> sent_keys_, pushed_keys_;
  std::vector<std::vector<uint32_t>> sent_lookups_;
  std::vector<size_t> their_evicted_;
  std::vector<const uint32_t*> pushed_lookups_;
};

}  // namespace hotrow
