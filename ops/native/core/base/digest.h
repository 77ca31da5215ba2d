// A digest of rows that does not depend on their order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow {

// Adds the hash of one (key, row) to the digest of a set: two sums modulo 2^64.
// row: its bits.
void add_row_digest(int64_t key, const void* row, size_t bytes, uint64_t digest[2]);

}  // namespace hotrow
