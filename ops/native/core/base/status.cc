#include "core/base/status.h"

#include <cstdio>
#include <vector>

namespace hotrow {

void fail(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::vector<char> text(static_cast<size_t>(length) + 1);
  std::vsnprintf(text.data(), text.size(), format, again);
  va_end(again);
  throw Error(code, std::string(text.data(), static_cast<size_t>(length)));
}

}  // namespace hotrow
