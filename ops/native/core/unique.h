// Distinct keys of a batch, in the order of their first appearance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hotrow {

// N keys in, U <= N distinct keys out: keys[i] == unique[inverse[i]].
// Holds its scratch memory, so one object a thread makes no allocation in steady state.
class Unique {
 public:
  // keys: (count). Every int64 value is legal. Fails for more than 2^31 - 1 keys.
  void run(const int64_t* keys, size_t count);

  const std::vector<int64_t>& keys() const { return keys_; }        // (U)
  const std::vector<int32_t>& inverse() const { return inverse_; }  // (N)

 private:
  std::vector<int64_t> keys_;
  std::vector<int32_t> inverse_;
  std::vector<int32_t> slots_;  // open addressing: position in keys_, or -1
};

}  // namespace hotrow
