#include "rest/json_text.h"

#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace hotrow_server {
namespace {

template <typename Value>
void write(Value value, int most_digits, std::string* to) {
  if (std::isnan(value)) {
    *to += "NaN";
    return;
  }
  if (std::isinf(value)) {
    *to += value > 0 ? "Infinity" : "-Infinity";
    return;
  }
  char text[40];
  char* end = std::to_chars(text, text + sizeof(text), value, std::chars_format::general, 6).ptr;
  Value back = 0;
  std::from_chars(text, end, back);
  if (back != value) {
    end = std::to_chars(text, text + sizeof(text), value, std::chars_format::general, most_digits)
              .ptr;
  }
  const std::string_view written(text, static_cast<size_t>(end - text));
  *to += written;
  if (written.find_first_of(".e") == std::string_view::npos) *to += ".0";
}

}  // namespace

void write_string(std::string_view value, std::string* to) {
  constexpr char kHex[] = "0123456789abcdef";
  *to += '"';
  for (const char c : value) {
    switch (c) {
      case '"':
        *to += "\\\"";
        break;
      case '\\':
        *to += "\\\\";
        break;
      case '\b':
        *to += "\\b";
        break;
      case '\f':
        *to += "\\f";
        break;
      case '\n':
        *to += "\\n";
        break;
      case '\r':
        *to += "\\r";
        break;
      case '\t':
        *to += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *to += "\\u00";
          *to += kHex[c >> 4];
          *to += kHex[c & 15];
        } else {
          *to += c;
        }
    }
  }
  *to += '"';
}

void write_number(float value, std::string* to) { write(value, 9, to); }
void write_number(double value, std::string* to) { write(value, 17, to); }

std::string error_text(std::string_view message) {
  std::string text = "{ \"error\": ";
  write_string(as_utf8(std::string(message)), &text);
  return text + " }";
}

}  // namespace hotrow_server
