// Text of JSON values in replies, as TensorFlow Serving writes it.
#pragma once

#include <string>
#include <string_view>

namespace hotrow_server {

// A quoted string; bytes that are not UTF-8 stay as they are.
void write_string(std::string_view value, std::string* to);
// A number that reads back as the same value, and as one with a fraction ("2.0", not "2"): 6 digits
// if they do, else 9 or 17. NaN, Infinity and -Infinity, which standard JSON lacks.
void write_number(float value, std::string* to);
void write_number(double value, std::string* to);

// The body of a refusal; bytes of the request that are not UTF-8 are replaced.
std::string error_text(std::string_view message);

}  // namespace hotrow_server
