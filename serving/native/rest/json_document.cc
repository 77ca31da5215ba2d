#include "rest/json_document.h"

#include <absl/strings/numbers.h>
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace hotrow_server {
namespace {

// Numbers as text: RapidJSON's own conversion is not exact, and the exact one
// (kParseFullPrecisionFlag) reads outside its table for some numbers with hundreds of digits.
constexpr unsigned kLiberal = rapidjson::kParseNanAndInfFlag | rapidjson::kParseStopWhenDoneFlag |
                              rapidjson::kParseNumbersAsStringsFlag |
                              rapidjson::kParseIterativeFlag;

// The value of NaN, Infinity, Inf, or digits that JSON allows; infinite when it is too large.
double decimal_of(std::string_view text) {
  if (text == "NaN" || text == "-NaN") return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Too large, or too small.
  if (error == std::errc::result_out_of_range) {
    (void)absl::SimpleAtod(absl::string_view(text.data(), text.size()), &value);
  }
  return value;
}

template <typename Whole>
bool read_whole(std::string_view text, Whole* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// Passes a document's values on until they are nested too deeply, or a number is too large.
class CheckedValues {
 public:
  CheckedValues(rapidjson::Document* to, int most_levels) : to_(to), most_levels_(most_levels) {}

  bool is_too_deep() const { return level_ > most_levels_; }
  bool is_too_large() const { return is_too_large_; }

  using Size = rapidjson::SizeType;
  bool Null() { return to_->Null(); }
  bool Bool(bool value) { return to_->Bool(value); }
  bool Int(int value) { return to_->Int(value); }
  bool Uint(unsigned value) { return to_->Uint(value); }
  bool Int64(int64_t value) { return to_->Int64(value); }
  bool Uint64(uint64_t value) { return to_->Uint64(value); }
  bool Double(double value) { return to_->Double(value); }
  bool RawNumber(const char* digits, Size length, bool) {
    const std::string_view text(digits, length);
    int64_t whole = 0;
    if (read_whole(text, &whole)) return to_->Int64(whole);
    uint64_t large = 0;
    if (read_whole(text, &large)) return to_->Uint64(large);
    const double value = decimal_of(text);
    is_too_large_ = std::isinf(value) && text.find('I') == std::string_view::npos;
    return !is_too_large_ && to_->Double(value);
  }
  bool String(const char* text, Size length, bool copy) { return to_->String(text, length, copy); }
  bool Key(const char* text, Size length, bool copy) { return to_->Key(text, length, copy); }
  bool StartObject() { return ++level_ <= most_levels_ && to_->StartObject(); }
  bool EndObject(Size members) {
    --level_;
    return to_->EndObject(members);
  }
  bool StartArray() { return ++level_ <= most_levels_ && to_->StartArray(); }
  bool EndArray(Size items) {
    --level_;
    return to_->EndArray(items);
  }

 private:
  rapidjson::Document* const to_;
  const int most_levels_;
  int level_ = 0;
  bool is_too_large_ = false;
};

}  // namespace

void JsonParser::parse_liberally(std::string_view body, rapidjson::Document* document) {
  if (body.empty()) refuse("JSON Parse error: The document is empty");
  rapidjson::Reader reader;
  bool is_too_deep = false, is_too_large = false;
  auto parse = [&](rapidjson::Document& to) {
    rapidjson::MemoryStream stream(body.data(), body.size());
    CheckedValues values(&to, kMostLevels);
    const bool good = !reader.Parse<kLiberal>(stream, values).IsError();
    is_too_deep = values.is_too_deep();
    is_too_large = values.is_too_large();
    return good;
  };
  document->Populate(parse);
  if (is_too_deep) refuse("JSON Parse error: the value is nested too deeply");
  if (reader.HasParseError()) {
    refuse(std::string("JSON Parse error: ") +
           rapidjson::GetParseError_En(is_too_large ? rapidjson::kParseErrorNumberTooBig
                                                    : reader.GetParseErrorCode()) +
           " at offset: " + std::to_string(reader.GetErrorOffset()));
  }
}

}  // namespace hotrow_server
