// Hashes strings to keys: FarmHash Fingerprint64, the function of tf.fingerprint.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow {

// keys[i] = Fingerprint64(prefix + data[offsets[i] : offsets[i + 1]]) for i < count.
// offsets: (count + 1), ascending, in bytes. The prefix of a feature is its name and 0x1f.
void fingerprint64(const char* prefix, size_t prefix_bytes, const char* data,
                   const int64_t* offsets, size_t count, int64_t* keys);

}  // namespace hotrow
