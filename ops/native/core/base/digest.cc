#include "core/base/digest.h"

#include <farmhash.h>

#include "core/base/hash.h"

namespace hotrow {

void add_row_digest(int64_t key, const void* row, size_t bytes, uint64_t digest[2]) {
  const uint64_t content = util::Fingerprint64(static_cast<const char*>(row), bytes);
  const uint64_t one = combine64(static_cast<uint64_t>(key), content);
  digest[0] += one;
  digest[1] += mix64(one ^ 0x5851f42d4c957f2dULL);
}

}  // namespace hotrow
