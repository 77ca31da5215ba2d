// The JSON object of a request's body.
#pragma once

#include <simdjson.h>

#include <new>
#include <string>
#include <string_view>

#include "base/refused.h"
#include "rest/json_value.h"

namespace hotrow_server {

// Memory of a thread's parser, used again for the next body.
class JsonParser {
 public:
  JsonParser() {
    constexpr size_t kAtFirst = 4096;
    if (parser_.allocate(kAtFirst, kMostLevels) != simdjson::SUCCESS) throw std::bad_alloc();
  }

  // Calls read(object) with the object that a body begins with. simdjson parses it; what that
  // refuses, RapidJSON may take: NaN and infinities, whole numbers of more than 64 bits, text
  // behind the object, strings that are not UTF-8. body: simdjson::SIMDJSON_PADDING bytes behind
  // its end can be read. Fails with INVALID_ARGUMENT, and TensorFlow Serving's text, for an empty
  // body, broken JSON, or another kind of value.
  template <typename Read>
  void parse(std::string_view body, Read&& read) {
    simdjson::dom::element found;
    if (parser_.parse(body.data(), body.size(), false).get(found) == simdjson::SUCCESS) {
      const FastJson value(found);
      check_object(value);
      read(value);
      return;
    }
    rapidjson::Document document;
    parse_liberally(body, &document);
    const LiberalJson value(document);
    check_object(value);
    read(value);
  }

 private:
  template <typename Json>
  static void check_object(const Json& value) {
    if (value.kind() != JsonKind::kObject) {
      refuse("JSON Value: " + shown(value) + " Is not object");
    }
  }
  static void parse_liberally(std::string_view body, rapidjson::Document* document);

  // Values that are nested deeper are refused: what reads them recurses.
  static constexpr int kMostLevels = 1000;

  simdjson::dom::parser parser_;
};

}  // namespace hotrow_server
