#include "rest/json_value.h"

#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

#include <cmath>

#include "rest/json_text.h"

namespace hotrow_server {
namespace {

constexpr size_t kShownChars = 256;

using Writer = rapidjson::PrettyWriter<rapidjson::StringBuffer>;

// Writes until enough is written to be shown; then the rest is missing.
template <typename Json>
void write(const Json& value, const rapidjson::StringBuffer& written, Writer* writer) {
  if (written.GetSize() > kShownChars) {
    writer->Null();
    return;
  }
  switch (value.kind()) {
    case JsonKind::kNull:
      writer->Null();
      return;
    case JsonKind::kFalse:
    case JsonKind::kTrue:
      writer->Bool(value.boolean());
      return;
    case JsonKind::kString:
      writer->String(value.text().data(), static_cast<rapidjson::SizeType>(value.text().size()));
      return;
    case JsonKind::kNumber: {
      const JsonNumber number = value.number();
      if (number.type == JsonNumber::Type::kInt64) {
        writer->Int64(number.signed_value);
      } else if (number.type == JsonNumber::Type::kUint64) {
        writer->Uint64(number.unsigned_value);
      } else if (std::isfinite(number.decimal)) {
        writer->Double(number.decimal);
      } else {
        std::string text;
        write_number(number.decimal, &text);
        writer->RawValue(text.data(), text.size(), rapidjson::kNumberType);
      }
      return;
    }
    case JsonKind::kArray:
      writer->StartArray();
      value.each_item([&](const Json& item) {
        if (written.GetSize() <= kShownChars) write(item, written, writer);
      });
      writer->EndArray();
      return;
    case JsonKind::kObject:
      writer->StartObject();
      value.each_member([&](std::string_view name, const Json& member) {
        if (written.GetSize() > kShownChars) return;
        writer->Key(name.data(), static_cast<rapidjson::SizeType>(name.size()));
        write(member, written, writer);
      });
      writer->EndObject();
      return;
  }
}

}  // namespace

const char* name_of(JsonKind kind) {
  constexpr const char* kNames[] = {"Null", "False", "True", "Object", "Array", "String", "Number"};
  return kNames[static_cast<int>(kind)];
}

size_t FastJson::read_numbers(float* to) const {
  size_t count = 0;
  for (const simdjson::dom::element item : array()) {
    double value;
    if (item.get_double().get(value) != simdjson::SUCCESS) break;
    to[count++] = static_cast<float>(value);
  }
  return count;
}

size_t LiberalJson::read_numbers(float* to) const {
  size_t count = 0;
  for (const rapidjson::Value& item : value_->GetArray()) {
    if (!item.IsNumber()) break;
    to[count++] = static_cast<float>(item.GetDouble());
  }
  return count;
}

JsonKind FastJson::kind() const {
  using Type = simdjson::dom::element_type;
  switch (value_.type()) {
    case Type::ARRAY:
      return JsonKind::kArray;
    case Type::OBJECT:
      return JsonKind::kObject;
    case Type::STRING:
      return JsonKind::kString;
    case Type::BOOL:
      return boolean() ? JsonKind::kTrue : JsonKind::kFalse;
    case Type::NULL_VALUE:
      return JsonKind::kNull;
    default:
      return JsonKind::kNumber;
  }
}

JsonNumber FastJson::number() const {
  using Type = simdjson::dom::element_type;
  JsonNumber number;
  switch (value_.type()) {
    case Type::INT64:
      number.type = JsonNumber::Type::kInt64;
      number.signed_value = value_.get_int64().value_unsafe();
      break;
    case Type::UINT64:
      number.type = JsonNumber::Type::kUint64;
      number.unsigned_value = value_.get_uint64().value_unsafe();
      break;
    default:
      number.type = JsonNumber::Type::kDouble;
      number.decimal = value_.get_double().value_unsafe();
  }
  return number;
}

size_t FastJson::size() const {
  // simdjson counts to 16,777,215 and stays there.
  constexpr size_t kMostCounted = 0xffffff;
  size_t size = value_.is_array() ? array().size() : object().size();
  if (size < kMostCounted) return size;
  size = 0;
  if (value_.is_array()) {
    each_item([&](const FastJson&) { ++size; });
  } else {
    each_member([&](std::string_view, const FastJson&) { ++size; });
  }
  return size;
}

std::optional<FastJson> FastJson::member(std::string_view name) const {
  simdjson::dom::element found;
  if (object().at_key(name).get(found) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return FastJson(found);
}

JsonNumber LiberalJson::number() const {
  JsonNumber number;
  if (value_->IsInt64()) {
    number.type = JsonNumber::Type::kInt64;
    number.signed_value = value_->GetInt64();
  } else if (value_->IsUint64()) {
    number.type = JsonNumber::Type::kUint64;
    number.unsigned_value = value_->GetUint64();
  } else {
    number.type = JsonNumber::Type::kDouble;
    number.decimal = value_->GetDouble();
  }
  return number;
}

std::optional<LiberalJson> LiberalJson::member(std::string_view name) const {
  const auto found = value_->FindMember(rapidjson::StringRef(name.data(), name.size()));
  if (found == value_->MemberEnd()) return std::nullopt;
  return LiberalJson(found->value);
}

template <typename Json>
std::string shown(const Json& value) {
  rapidjson::StringBuffer written;
  Writer writer(written);
  write(value, written, &writer);
  return std::string(written.GetString(), written.GetSize()).substr(0, kShownChars);
}

template std::string shown(const FastJson& value);
template std::string shown(const LiberalJson& value);

}  // namespace hotrow_server
