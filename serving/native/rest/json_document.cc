#include "rest/json_document.h"

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

namespace hotrow_server {
namespace {

// Values that are nested deeper are refused: what reads them recurses.
constexpr int kMostLevels = 1000;

constexpr unsigned kLiberal = rapidjson::kParseNanAndInfFlag | rapidjson::kParseStopWhenDoneFlag |
                              rapidjson::kParseFullPrecisionFlag | rapidjson::kParseIterativeFlag;

// Passes a document's values on until they are nested too deeply.
class Levels {
 public:
  explicit Levels(rapidjson::Document* to) : to_(to) {}

  bool is_too_deep() const { return level_ > kMostLevels; }

  using Size = rapidjson::SizeType;
  bool Null() { return to_->Null(); }
  bool Bool(bool value) { return to_->Bool(value); }
  bool Int(int value) { return to_->Int(value); }
  bool Uint(unsigned value) { return to_->Uint(value); }
  bool Int64(int64_t value) { return to_->Int64(value); }
  bool Uint64(uint64_t value) { return to_->Uint64(value); }
  bool Double(double value) { return to_->Double(value); }
  bool RawNumber(const char* text, Size length, bool copy) {
    return to_->RawNumber(text, length, copy);
  }
  bool String(const char* text, Size length, bool copy) { return to_->String(text, length, copy); }
  bool Key(const char* text, Size length, bool copy) { return to_->Key(text, length, copy); }
  bool StartObject() { return ++level_ <= kMostLevels && to_->StartObject(); }
  bool EndObject(Size members) {
    --level_;
    return to_->EndObject(members);
  }
  bool StartArray() { return ++level_ <= kMostLevels && to_->StartArray(); }
  bool EndArray(Size items) {
    --level_;
    return to_->EndArray(items);
  }

 private:
  rapidjson::Document* const to_;
  int level_ = 0;
};

}  // namespace

void JsonParser::parse_liberally(std::string_view body, rapidjson::Document* document) {
  if (body.empty()) refuse("JSON Parse error: The document is empty");
  rapidjson::Reader reader;
  bool is_too_deep = false;
  auto parse = [&](rapidjson::Document& to) {
    rapidjson::MemoryStream stream(body.data(), body.size());
    Levels levels(&to);
    const bool good = !reader.Parse<kLiberal>(stream, levels).IsError();
    is_too_deep = levels.is_too_deep();
    return good;
  };
  document->Populate(parse);
  if (is_too_deep) refuse(kNestedTooDeeply);
  if (reader.HasParseError()) {
    refuse(std::string("JSON Parse error: ") +
           rapidjson::GetParseError_En(reader.GetParseErrorCode()) +
           " at offset: " + std::to_string(reader.GetErrorOffset()));
  }
}

}  // namespace hotrow_server
