#include "rest/examples_json.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "base/refused.h"
#include "rest/json_document.h"
#include "tensorflow/core/example/example.pb.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;

serving::Input read(std::string body) {
  const size_t size = body.size();
  body.reserve(size + simdjson::SIMDJSON_PADDING);
  serving::Input input;
  JsonParser().parse(std::string_view(body.data(), size),
                     [&input](const auto& object) { input = read_examples(object); });
  return input;
}

tensorflow::Feature feature(const std::string& json, const std::string& name = "x") {
  const serving::Input input = read("{\"examples\": [{\"" + name + "\": " + json + "}]}");
  return input.example_list().examples(0).features().feature().at(name);
}

std::string refused(const std::string& body) {
  try {
    read(body);
  } catch (const Refused& error) {
    CHECK(error.code() == grpc::StatusCode::INVALID_ARGUMENT);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("examples_json: values have the type that JSON shows") {
  CHECK(feature("2").int64_list().value(0) == 2);
  CHECK(feature("-9223372036854775808").int64_list().value(0) ==
        std::numeric_limits<int64_t>::min());
  CHECK(feature("[true, false, 3]").int64_list().value_size() == 3);
  CHECK(feature("true").int64_list().value(0) == 1);
  CHECK(feature("2.0").float_list().value(0) == 2.0f);
  CHECK(feature("[1e3, -0.5]").float_list().value(1) == -0.5f);
  CHECK(feature("-9223372036854775809").float_list().value(0) == -9223372036854775808.0f);
  CHECK(feature("[NaN, -Infinity]").float_list().value(1) ==
        -std::numeric_limits<float>::infinity());
  CHECK(feature("\"a\\u00e9\"").bytes_list().value(0) == "a\xc3\xa9");
  CHECK(feature("\"\xff\"").bytes_list().value(0) == "\xff");
  CHECK(feature("[{\"b64\": \"aGk=\"}, \"b\"]").bytes_list().value(0) == "hi");
  CHECK(feature("[]").kind_case() == tensorflow::Feature::KIND_NOT_SET);
  // The last of several of a name.
  const auto last = feature("[1], \"x\": \"b\"");
  CHECK(last.bytes_list().value(0) == "b");
}

TEST_CASE("examples_json: examples may have a context") {
  const serving::Input plain = read(R"({"examples": [{}, {"a": 1, "b": "c"}]})");
  CHECK(plain.kind_case() == serving::Input::kExampleList);
  CHECK(plain.example_list().examples_size() == 2);
  CHECK(plain.example_list().examples(0).ByteSizeLong() == 0);
  CHECK(plain.example_list().examples(1).features().feature_size() == 2);
  const serving::Input both = read(R"({"context": {"c": 1.5}, "examples": [{"a": 1}]})");
  CHECK(both.example_list_with_context().examples_size() == 1);
  CHECK(both.example_list_with_context().context().features().feature().contains("c"));
}

TEST_CASE("examples_json: refusals have TensorFlow Serving's texts") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"example": []})", R"(JSON Value: {
    "example": []
} When method is classify, key 'examples' is expected and was not found)"},
      {R"({"examples": {}})", R"(JSON Value: {
    "examples": {}
} Expecting 'examples' value to be an list/array)"},
      {R"({"examples": []})", R"(JSON Value: {
    "examples": []
} 'examples' value is an empty array)"},
      {R"({"examples": [1]})", "Example must be JSON object but got JSON Number"},
      {R"({"examples": [{}], "context": [1]})", "Example must be JSON object but got JSON Array"},
      {R"({"examples": [{"x": null}]})", "Feature: x has element with unexpected JSON type: Null"},
      {R"({"examples": [{"x": [[1]]}]})",
       "Feature: x has element with unexpected JSON type: Array"},
      {R"({"examples": [{"x": {"b64": "aGk=", "c": 1}}]})",
       "Feature: x has element with unexpected JSON type: Object"},
      {R"({"examples": [{"x": {"b64": "!"}}]})", "Unable to base64 decode"},
      {R"({"examples": [{"x": [1.5, "a"]}]})",
       "Unexpected element type in feature: x expecting type: float"},
      {R"({"examples": [{"x": [1, 1.5]}]})",
       "Unexpected element type in feature: x expecting type: int64"},
      {R"({"examples": [{"x": ["a", true]}]})",
       "Unexpected element type in feature: x expecting type: bytes"},
      {R"({"examples": [{"x": 18446744073709551615}]})",
       "Feature: x has uint64_t element. Only int64_t is supported."},
      {"{\"examples\": [{\"\xff\": 1}]}", "Feature: \xff has a name that is not UTF-8"},
  };
  for (const auto& [body, message] : cases) CHECK(refused(body) == message);
}

TEST_CASE("examples_json: results") {
  serving::ClassificationResult classes;
  CHECK(write_classes(classes) == "{\n    \"results\": [\n    ]\n}");
  auto* one = classes.add_classifications()->add_classes();
  one->set_label("a\"b");
  one->set_score(0.5f);
  one = classes.mutable_classifications(0)->add_classes();
  one->set_score(3);
  classes.add_classifications();
  CHECK(write_classes(classes) ==
        "{\n    \"results\": [[[\"a\\\"b\", 0.5], [\"\", 3.0]], []\n    ]\n}");
  serving::RegressionResult values;
  values.add_regressions()->set_value(3.25f);
  values.add_regressions()->set_value(std::numeric_limits<float>::infinity());
  CHECK(write_values(values) == "{\n    \"results\": [3.25, Infinity]\n}");
}

}  // namespace hotrow_server
