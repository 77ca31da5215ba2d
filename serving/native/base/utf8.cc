#include "base/utf8.h"

#include <simdjson.h>

#include <algorithm>

namespace hotrow_server {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

struct Part {
  size_t bytes;
  bool is_character;
};

// The first character of a text that is not empty, or the bytes that begin none: the longest start
// of a character (The Unicode Standard, chapter 3, "U+FFFD Substitution of Maximal Subparts").
Part first_part(std::string_view text) {
  const auto byte = [text](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xc2 || lead > 0xf4) return {1, false};
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // No characters of too many bytes, no surrogates, none above U+10FFFF.
  const unsigned char least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (size_t at = 1; at < length; ++at) {
    if (at == text.size()) return {at, false};
    if (byte(at) < (at == 1 ? least : 0x80) || byte(at) > (at == 1 ? most : 0xbf)) {
      return {at, false};
    }
  }
  return {length, true};
}

}  // namespace

bool is_utf8(std::string_view bytes) { return simdjson::validate_utf8(bytes.data(), bytes.size()); }

std::string as_utf8(std::string bytes) {
  if (is_utf8(bytes)) return bytes;
  std::string text;
  text.reserve(bytes.size() + kReplacement.size());
  for (std::string_view rest = bytes; !rest.empty();) {
    const Part part = first_part(rest);
    text += part.is_character ? rest.substr(0, part.bytes) : kReplacement;
    rest.remove_prefix(part.bytes);
  }
  return text;
}

}  // namespace hotrow_server
