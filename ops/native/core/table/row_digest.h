// The digest of rows in arrays; see core/base/digest.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow {

// Adds rows to a digest, as Table::digest does. keys, clocks, counts: (count); lines: (count,
// line_bytes).
void add_rows_digest(const int64_t* keys, const std::byte* lines, const uint32_t* clocks,
                     const uint32_t* counts, size_t count, size_t line_bytes, uint64_t digest[2]);

}  // namespace hotrow
