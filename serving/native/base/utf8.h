// Text from clients that should be UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace hotrow_server {

bool is_utf8(std::string_view bytes);
// The text with U+FFFD for each part that is not UTF-8, as Python and browsers decode it.
std::string as_utf8(std::string bytes);

}  // namespace hotrow_server
