#include "core/base/fingerprint.h"

#include <farmhash.h>

#include <cstring>
#include <vector>

namespace hotrow {

void fingerprint64(const char* prefix, size_t prefix_bytes, const char* data,
                   const int64_t* offsets, size_t count, int64_t* keys) {
  std::vector<char> text(prefix, prefix + prefix_bytes);
  for (size_t i = 0; i < count; ++i) {
    const size_t bytes = static_cast<size_t>(offsets[i + 1] - offsets[i]);
    text.resize(prefix_bytes + bytes);
    if (bytes != 0) std::memcpy(text.data() + prefix_bytes, data + offsets[i], bytes);
    keys[i] = static_cast<int64_t>(util::Fingerprint64(text.data(), text.size()));
  }
}

}  // namespace hotrow
