// Distinct keys of a batch, in the order of their first appearance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotrow {

// N keys in, U <= N distinct keys out: keys[i] == unique[inverse[i]]. Keeps its scratch memory, so
// that it allocates nothing in steady state.
class Unique {
 public:
  // keys: (count). Every int64 value is legal. Fails for more than 2^31 - 1 keys.
  void run(const int64_t* keys, size_t count);

  size_t size() const { return size_; }                       // U
  const int64_t* keys() const { return keys_.data(); }        // (U)
  const uint64_t* hashes() const { return hashes_.data(); }   // (U) mix64 of the keys
  const uint32_t* counts() const { return counts_.data(); }   // (U) how often each appeared
  const int32_t* inverse() const { return inverse_.data(); }  // (N)

 private:
  size_t size_ = 0;
  // Never shrunk: a vector that shrinks and grows writes zeros each time.
  std::vector<int64_t> keys_;
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> counts_;
  std::vector<int32_t> inverse_;
  std::vector<int32_t> slots_;  // open addressing: position in keys_, or -1
};

}  // namespace hotrow
