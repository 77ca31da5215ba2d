// A JSON value as either parser has it: simdjson's, which is fast and strict, or RapidJSON's, which
// is TensorFlow Serving's and takes more. What reads values is written once, for both.
#pragma once

#include <rapidjson/document.h>
#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hotrow_server {

enum class JsonKind { kNull, kFalse, kTrue, kObject, kArray, kString, kNumber };

// RapidJSON's name of a kind, for messages.
const char* name_of(JsonKind kind);

// A number as it was written: a whole number that fits in 64 bits, or a decimal.
struct JsonNumber {
  enum class Type { kInt64, kUint64, kDouble };
  Type type;
  union {
    int64_t signed_value;
    uint64_t unsigned_value;  // above those of int64
    double decimal;
  };

  bool is_whole() const { return type != Type::kDouble; }
  double as_double() const {
    if (type == Type::kInt64) return static_cast<double>(signed_value);
    return type == Type::kUint64 ? static_cast<double>(unsigned_value) : decimal;
  }
};

// Refers to its document.
class FastJson {
 public:
  explicit FastJson(simdjson::dom::element value) : value_(value) {}

  JsonKind kind() const;
  JsonNumber number() const;
  bool boolean() const { return value_.get_bool().value_unsafe(); }
  std::string_view text() const { return value_.get_string().value_unsafe(); }
  // Of an array or object.
  size_t size() const;
  FastJson first() const { return FastJson(*array().begin()); }
  // Visits the items of an array: visit(item).
  template <typename Visit>
  void each_item(Visit&& visit) const {
    for (const simdjson::dom::element item : array()) visit(FastJson(item));
  }
  // Reads the items of an array until one is no number; returns how many.
  size_t read_numbers(float* to) const;
  // Visits the members of an object: visit(name, value).
  template <typename Visit>
  void each_member(Visit&& visit) const {
    for (const auto& [name, value] : object()) visit(name, FastJson(value));
  }
  std::optional<FastJson> member(std::string_view name) const;

 private:
  simdjson::dom::array array() const { return value_.get_array().value_unsafe(); }
  simdjson::dom::object object() const { return value_.get_object().value_unsafe(); }

  simdjson::dom::element value_;
};

// Refers to its document.
class LiberalJson {
 public:
  explicit LiberalJson(const rapidjson::Value& value) : value_(&value) {}

  JsonKind kind() const { return kKinds[value_->GetType()]; }
  JsonNumber number() const;
  bool boolean() const { return value_->GetBool(); }
  std::string_view text() const { return {value_->GetString(), value_->GetStringLength()}; }
  size_t size() const { return value_->IsArray() ? value_->Size() : value_->MemberCount(); }
  LiberalJson first() const { return LiberalJson(*value_->Begin()); }
  template <typename Visit>
  void each_item(Visit&& visit) const {
    for (const rapidjson::Value& item : value_->GetArray()) visit(LiberalJson(item));
  }
  size_t read_numbers(float* to) const;
  template <typename Visit>
  void each_member(Visit&& visit) const {
    for (const auto& member : value_->GetObject()) {
      visit(LiberalJson(member.name).text(), LiberalJson(member.value));
    }
  }
  std::optional<LiberalJson> member(std::string_view name) const;

 private:
  // By rapidjson::Type.
  static constexpr JsonKind kKinds[] = {JsonKind::kNull,   JsonKind::kFalse, JsonKind::kTrue,
                                        JsonKind::kObject, JsonKind::kArray, JsonKind::kString,
                                        JsonKind::kNumber};
  const rapidjson::Value* value_;
};

// A value for a message: indented as RapidJSON does, its first 256 characters.
template <typename Json>
std::string shown(const Json& value);
extern template std::string shown(const FastJson& value);
extern template std::string shown(const LiberalJson& value);

}  // namespace hotrow_server
