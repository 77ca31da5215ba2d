// Estimated counts of the occurrences of keys that have no row yet, in memory of fixed size.
#pragma once

#include "core/base/anonymous_array.h"
#include "core/table/admission.h"

namespace hotrow {

// A counting Bloom filter with conservative update (Estan, Varghese: New Directions in Traffic
// Measurement and Accounting, 2002): a key's estimate is the smallest of its k counters, and a
// occurrence raises only those counters that are below the new estimate. An estimate is never too
// low, so a key is never admitted late.
//
// Size. A key's estimate is too high only if others raised each of its k counters. With n other
// keys in m counters that has probability p = (1 - exp(-k n / m))^k whatever their counts are;
// k = log2(1 / p) needs the least memory, and then m = -k n / ln(1 - p^(1 / k)). For n keys at
// 1 % that is 2 x 11 counters of log2(occurrences) bits a key (see below), rounded up to 1, 2, 4,
// 8, 16 or 32 bits.
//
// Ageing. A Bloom filter cannot remove a single key, whether it was admitted or never occurs again.
// So there are two generations of m counters, each with half of the error rate: occurrences go to
// the younger; a key new to it brings its estimate from the older; when n keys have entered the
// younger one, the older is dropped and an empty one begins. The second generation takes no memory
// until then. Hence with at most n keys no count is lost, and beyond that
//   - a key is never late if fewer than n others occurred between each two of its occurrences;
//   - a key whose occurrences fall into two generations is early with at most the error rate, and
//     with half as much more for each further generation;
//   - a key whose row expires within two generations of its admission comes back with its old
//     count.
// All of it depends on the order of the occurrences only, so a restored filter goes on bit for bit.
class FrequencyFilter final : public AdmissionFilter {
 public:
  // n is expected_keys / partitions, plus four standard deviations of a partition's share.
  FrequencyFilter(const AdmissionOptions& options, size_t partitions);

  bool count_occurrences(int64_t key, uint32_t times) override;
  uint64_t waiting() const override { return younger_.waiting + older_.waiting; }
  void begin_changes() override;
  void keep_changes() noexcept override;
  void undo_changes() noexcept override;
  size_t bytes() const override { return younger_.words.bytes() + older_.words.bytes(); }
  std::vector<uint8_t> save() const override;
  void restore(const uint8_t* data, size_t size) override;
  void clear() override;

  uint64_t keys_per_generation() const { return keys_; }
  uint64_t counters() const { return counters_; }
  uint32_t hashes() const { return hashes_; }
  uint32_t bits() const { return uint32_t{1} << log2_bits_; }

 private:
  static constexpr uint32_t kMostHashes = 64;

  // m counters of `bits` bits, packed into words.
  struct Generation {
    AnonymousArray<uint32_t> words;
    uint64_t keys = 0;     // keys that entered
    uint64_t waiting = 0;  // keys neither admitted nor moved to the younger generation
  };

  AnonymousArray<uint32_t> empty_words() const;
  uint32_t counter(const Generation& generation, uint64_t position) const;
  // The smallest counter at the positions: 0 if the key is not in the generation.
  uint32_t estimate(const Generation& generation, const uint64_t* positions) const;
  void raise(uint64_t position, uint32_t count);

  uint32_t occurrences_;
  uint32_t hashes_;     // k
  uint32_t log2_bits_;  // of a counter
  uint64_t keys_;       // n
  uint64_t counters_;   // m
  Generation younger_;
  Generation older_;
  // Since begin_changes: the words before, kNextGeneration where a generation began, the
  // generations that were dropped, and the counts of keys.
  struct Change {
    uint64_t word;
    uint32_t before;
  };
  static constexpr uint64_t kNextGeneration = ~uint64_t{0};
  struct Keys {
    uint64_t keys, waiting;
  };
  std::vector<Change> changes_;
  std::vector<Generation> dropped_;
  Keys younger_before_{0, 0}, older_before_{0, 0};
  bool recording_ = false;
};

}  // namespace hotrow
