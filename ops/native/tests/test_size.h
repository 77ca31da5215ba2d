// The size of tests with large matrices.
#pragma once

#include <cstddef>
#include <cstring>

namespace hotrow {

// How much more a test does on a GPU; there, `--small` makes it 1.
#if defined(HOTROW_GPU)
inline size_t kScale = 16;
#else
inline size_t kScale = 1;
#endif

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Whether to test each value of a matrix only once, and run fewer steps: without a GPU, unless
// `--whole` is given; always under sanitizers.
#if defined(HOTROW_GPU)
inline bool kLess = kSanitized;
#else
inline bool kLess = true;
#endif

// Takes the options of this file from a command line.
inline void read_test_size(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--small") == 0) kScale = 1;
    if (std::strcmp(argv[i], "--whole") == 0) kLess = kSanitized;
  }
}

}  // namespace hotrow
