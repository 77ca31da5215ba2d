#include "core/table/row_digest.h"

#include <cstring>
#include <vector>

#include "core/base/digest.h"
#include "core/kernels/row_line.h"

namespace hotrow {

void add_rows_digest(const int64_t* keys, const std::byte* lines, const uint32_t* clocks,
                     const uint32_t* counts, size_t count, size_t line_bytes, uint64_t digest[2]) {
  std::vector<std::byte> row(sizeof(RowHeader) + line_bytes);
  for (size_t i = 0; i < count; ++i) {
    const RowHeader head{keys[i], clocks[i], counts[i]};
    std::memcpy(row.data(), &head, sizeof(head));
    std::memcpy(row.data() + sizeof(head), lines + i * line_bytes, line_bytes);
    add_row_digest(head.key, row.data(), row.size(), digest);
  }
}

}  // namespace hotrow
