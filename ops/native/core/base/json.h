// Reads JSON, which other programs may have written, and writes JSON. The JSON library takes
// seconds to compile, so only base/json.cc includes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace hotrow {

// A value of a parsed text, which it keeps alive. Every function fails with DataLoss where the
// value is of another type or a name is missing.
class Json {
 public:
  static Json parse(const std::string& text);

  bool has(const char* name) const;
  Json at(const char* name) const;
  std::vector<Json> items() const;  // of a list

  bool boolean() const;
  double number() const;
  // A whole number in [least, most]; the library would round, wrap or truncate other numbers.
  uint64_t whole(uint64_t least, uint64_t most) const;
  std::string text() const;
  std::string written() const;  // as JSON

  bool boolean(const char* name) const { return at(name).boolean(); }
  double number(const char* name) const { return at(name).number(); }
  uint64_t whole(const char* name, uint64_t least, uint64_t most) const;
  std::string text(const char* name) const { return at(name).text(); }
  std::vector<Json> items(const char* name) const { return at(name).items(); }

 private:
  struct Value;
  explicit Json(std::shared_ptr<const Value> value) : value_(std::move(value)) {}

  std::shared_ptr<const Value> value_;
};

// Writes an object: names in alphabetical order; bytes that are not UTF-8 are replaced.
class JsonObject {
 public:
  JsonObject();
  ~JsonObject();
  JsonObject(JsonObject&&) noexcept;

  JsonObject& set(const std::string& name, uint64_t value);
  JsonObject& set(const std::string& name, const std::string& value);
  JsonObject& set(const std::string& name, const std::vector<uint64_t>& values);
  JsonObject& set(const std::string& name, const JsonObject& value);
  std::string written() const;

 private:
  struct Value;
  std::unique_ptr<Value> value_;
};

}  // namespace hotrow
