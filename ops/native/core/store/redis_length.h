// Lengths as the protocol of Redis (RESP) writes them.
#pragma once

#include <charconv>
#include <cstddef>

namespace hotrow {

// Writes mark ('*' of an array, '$' of a string), number and the end of the line, 23 bytes at most;
// returns the place after them.
inline char* put_length(char mark, size_t number, char* out) {
  *out++ = mark;
  out = std::to_chars(out, out + 20, number).ptr;
  *out++ = '\r';
  *out++ = '\n';
  return out;
}

}  // namespace hotrow
