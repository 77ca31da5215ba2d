#include "rest/path.h"

#include <doctest/doctest.h>

#include <string>

#include "base/refused.h"

namespace hotrow_server {
namespace {

using Kind = RestPath::Kind;

std::string refused(std::string_view verb, std::string_view target) {
  try {
    read_path(verb, target);
  } catch (const Refused& error) {
    CHECK(error.code() == grpc::StatusCode::INVALID_ARGUMENT);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("path: verb and path say what is asked for, in any case of letters") {
  CHECK(read_path("POST", "/v1/models/m:predict").kind == Kind::kPredict);
  CHECK(read_path("POST", "/V1/Models/m:CLASSIFY").kind == Kind::kClassify);
  CHECK(read_path("POST", "/v1/models/m/versions/2:regress").kind == Kind::kRegress);
  CHECK(read_path("GET", "/v1/models/m").kind == Kind::kStatus);
  CHECK(read_path("GET", "/v1/models/m/Metadata").kind == Kind::kMetadata);
  CHECK(read_path("GET", "/v1/models/m/labels/metadata").kind == Kind::kStatus);
  CHECK(read_path("GET", "/v1/models/m/labels/a/metadata").kind == Kind::kMetadata);
  CHECK(read_path("GET", "/v1/models/metadata").kind == Kind::kStatus);
  CHECK(read_path("GET", "/v1/MODELS").kind == Kind::kModels);
  CHECK(read_path("POST", "/v1/models/m:regress").is_inference());
  CHECK(!read_path("GET", "/v1/models").is_inference());
}

TEST_CASE("path: a model has a name, and a version or a label") {
  const auto plain = read_path("GET", "/v1/models/half?x").spec;
  CHECK(plain.name() == "half?x");
  CHECK(plain.version_choice_case() == tensorflow::serving::ModelSpec::VERSION_CHOICE_NOT_SET);
  const auto version = read_path("GET", "/v1/models/M/VERSIONS/0009223372036854775807").spec;
  CHECK(version.name() == "M");
  CHECK(version.version().value() == INT64_MAX);
  CHECK(read_path("GET", "/v1/models/m/versions/0").spec.has_version());
  const auto label = read_path("POST", "/v1/models/a%20b/labels/c%2Fd%C3%A9:predict").spec;
  CHECK(label.name() == "a b");
  CHECK(label.version_label() == "c/d\xc3\xa9");
}

TEST_CASE("path: percent signs that encode nothing stay, and other bytes than UTF-8 are replaced") {
  const auto name = [](const std::string& text) {
    return read_path("GET", "/v1/models/" + text).spec.name();
  };
  CHECK(name("%") == "%");
  CHECK(name("%4") == "%4");
  CHECK(name("%zz%41") == "%zzA");
  CHECK(name("%%41") == "%A");
  CHECK(name("%C3") == "\xef\xbf\xbd");
  CHECK(name("%E2%82x") == "\xef\xbf\xbdx");
  CHECK(name("%FF%fe") == "\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(name("%ED%A0%80") == "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(name("%F0%9F%98%80") == "\xf0\x9f\x98\x80");
  CHECK(name("\xf5") == "\xef\xbf\xbd");
  CHECK(name(std::string("a\0b", 3)) == std::string("a\0b", 3));
}

TEST_CASE("path: others are malformed") {
  const std::pair<const char*, const char*> cases[] = {
      {"GET", "/v1/models/half:predict"},
      {"POST", "/v1/models/half:multiInference"},
      {"POST", "/v1/models/half:predict?x"},
      {"POST", "/v1/models/half"},
      {"POST", "/v1/models"},
      {"POST", "/v1/models/:predict"},
      {"POST", "/v1/models/half:predict:predict"},
      {"PUT", "/v1/models/half"},
      {"get", "/v1/models/half"},
      {"GET", "/v1/models/half/versions/1/labels/a"},
      {"GET", "/v1/models/half/versions/"},
      {"GET", "/v1/models/half/versions/1a"},
      {"GET", "/v1/models/half/versions/-1"},
      {"GET", "/v1/models/half/labels/"},
      {"GET", "/v1/models/half/"},
      {"GET", "/v1/models/half/metadata/"},
      {"GET", "/v1/models/half/Metadata?x"},
      {"GET", "/v1/models/"},
      {"GET", "/v1/models?x"},
      {"GET", "/v1/model"},
      {"GET", ""},
      {"", ""},
  };
  for (const auto& [verb, target] : cases) {
    CHECK(refused(verb, target) == std::string("Malformed request: ") + verb + " " + target);
  }
  CHECK(refused("GET", "/v1/models/half/versions/99999999999999999999") ==
        "Failed to convert version: 99999999999999999999 to numeric.");
  CHECK(refused("GET", "/v1/models/half/versions/9223372036854775808:x").starts_with("Malformed"));
}

}  // namespace hotrow_server
