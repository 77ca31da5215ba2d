// Where served rows are read from: a store, later a cache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow {

// Reads rows by key. Safe from several threads.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Floats of a row.
  virtual size_t width() const = 0;
  // rows: (count, width). An unknown key gets the default row. Keys are distinct.
  // Returns how many keys were unknown.
  virtual size_t read(const int64_t* keys, size_t count, float* rows) const = 0;
};

}  // namespace hotrow
