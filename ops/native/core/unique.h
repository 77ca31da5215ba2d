// Distinct keys of a batch, in the order of their first appearance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotrow {

// N keys in, U <= N distinct keys out: keys[i] == unique[inverse[i]].
// Holds its scratch memory, so that it makes no allocation in steady state.
class Unique {
 public:
  // keys: (count). Every int64 value is legal. Fails for more than 2^31 - 1 keys.
  // hashes: (count) mix64 of each key, or null.
  void run(const int64_t* keys, size_t count, const uint64_t* hashes = nullptr);

  size_t size() const { return keys_.size(); }
  const std::vector<int64_t>& keys() const { return keys_; }        // (U)
  const std::vector<uint64_t>& hashes() const { return hashes_; }   // (U) mix64 of the keys
  const std::vector<uint32_t>& counts() const { return counts_; }   // (U) how often each appeared
  const std::vector<int32_t>& inverse() const { return inverse_; }  // (N)

 private:
  std::vector<int64_t> keys_;
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> counts_;
  std::vector<int32_t> inverse_;
  std::vector<int32_t> slots_;  // open addressing: position in keys_, or -1
};

}  // namespace hotrow
