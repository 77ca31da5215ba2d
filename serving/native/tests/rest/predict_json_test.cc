#include "rest/predict_json.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <string>

#include "base/refused.h"
#include "rest/json_document.h"
#include "rest/json_text.h"

namespace hotrow_server {
namespace {

// Inputs and form of a body, or the message of its refusal.
struct Parsed {
  std::map<std::string, Tensor> inputs;
  JsonForm form{};
  std::string refused;

  template <typename Value>
  std::vector<Value> values(const std::string& alias) const {
    const TF_Tensor* const tensor = inputs.at(alias).get();
    const auto* const data = static_cast<const Value*>(TF_TensorData(tensor));
    return {data, data + TF_TensorElementCount(tensor)};
  }
};

Parsed parse(const std::string& body, const std::vector<JsonInput>& inputs) {
  Parsed parsed;
  std::string padded = body;
  padded.reserve(body.size() + simdjson::SIMDJSON_PADDING);
  try {
    JsonParser().parse(std::string_view(padded.data(), body.size()), [&](const auto& object) {
      parsed.inputs = read_inputs(object, inputs, &parsed.form);
    });
  } catch (const Refused& error) {
    parsed.refused = error.what();
  }
  return parsed;
}

const std::vector<JsonInput> kOne = {{"x", TF_FLOAT}};
const std::vector<JsonInput> kTwo = {{"ids", TF_INT64}, {"x", TF_FLOAT}};

}  // namespace

TEST_CASE("predict_json: rows and columns become tensors") {
  const Parsed rows =
      parse(R"({"instances": [{"x": [1, 2.5], "ids": 7}, {"ids": -8, "x": [3, 4]}]})", kTwo);
  CHECK(rows.refused == "");
  CHECK(rows.form == JsonForm::kRow);
  CHECK(rows.values<float>("x") == std::vector<float>{1, 2.5, 3, 4});
  CHECK(shape_of(rows.inputs.at("x").get()) == std::vector<int64_t>{2, 2});
  CHECK(rows.values<int64_t>("ids") == std::vector<int64_t>{7, -8});
  const Parsed columns = parse(R"({"inputs": {"ids": [[1], [2]], "x": 3}})", kTwo);
  CHECK(columns.form == JsonForm::kColumnar);
  CHECK(shape_of(columns.inputs.at("ids").get()) == std::vector<int64_t>{2, 1});
  CHECK(shape_of(columns.inputs.at("x").get()).empty());
  const Parsed plain = parse(R"({"instances": [[1.0], [2.0], [3.0]]})", kOne);
  CHECK(shape_of(plain.inputs.at("x").get()) == std::vector<int64_t>{3, 1});
  const Parsed bytes = parse(R"({"instances": [{"b64": "aGk="}, "x\u00e9"]})", {{"s", TF_STRING}});
  CHECK(string_at(bytes.inputs.at("s").get(), 0) == "hi");
  CHECK(string_at(bytes.inputs.at("s").get(), 1) == "x\xc3\xa9");
}

TEST_CASE("predict_json: what simdjson refuses and RapidJSON takes") {
  const Parsed special =
      parse(R"({"instances": [NaN, -Infinity, Inf, 1e400, 18446744073709551616]} x)", kOne);
  CHECK(special.refused ==
        "JSON Parse error: Number too big to be stored in double. at offset: 36");
  const Parsed large =
      parse(R"({"instances": [-Infinity, Inf, 18446744073709551616]} and more)", kOne);
  CHECK(large.refused == "");
  CHECK(large.values<float>("x")[2] == 18446744073709551616.0f);
  const Parsed one =
      parse(R"({"instances": [-0.0, 16777217.0, 1e-400, -9223372036854775808]} x)", kOne);
  CHECK(one.values<float>("x") == std::vector<float>{0, 16777216, 0, -9223372036854775808.0f});
  CHECK(parse(R"({"instances": [1.8e308]} x)", kOne).refused ==
        "JSON Parse error: Number too big to be stored in double. at offset: 15");
  // RapidJSON itself would read outside its table of powers.
  const std::string digits(780, '3');
  for (const char* const small : {"0.1", "0."}) {
    const std::string body = "{\"instances\": [" + (small + digits) + "e-600]} x";
    CHECK(parse(body, kOne).values<float>("x")[0] == 0);
  }
  const Parsed raw = parse("{\"instances\": [\"\xff\xfe\"]}", {{"s", TF_STRING}});
  CHECK(string_at(raw.inputs.at("s").get(), 0) == "\xff\xfe");
  CHECK(parse("", kOne).refused == "JSON Parse error: The document is empty");
  CHECK(parse("  ", kOne).refused == "JSON Parse error: The document is empty. at offset: 2");
  CHECK(parse("[1]", kOne).refused == "JSON Value: [\n    1\n] Is not object");
  CHECK(parse("{\"a\" 1}", kOne).refused ==
        "JSON Parse error: Missing a colon after a name of object member. at offset: 5");
  for (const size_t depth : {size_t{1000}, size_t{1100}, size_t{1} << 20}) {
    const std::string deep =
        "{\"instances\": " + std::string(depth, '[') + std::string(depth, ']') + "}";
    CHECK(parse(deep, kOne).refused == "JSON Parse error: the value is nested too deeply");
  }
}

TEST_CASE("predict_json: a member that a row repeats does not stand for one that it lacks") {
  for (const std::string end : {"", " x"}) {
    const Parsed repeated = parse(R"({"instances": [{"x": 1, "x": 2}]})" + end, kTwo);
    CHECK(repeated.inputs.empty());
    CHECK(repeated.refused.find("keys must be equal to: ids,x") != std::string::npos);
    const Parsed more = parse(R"({"instances": [{"x": 1, "ids": 2, "x": 3}]})" + end, kTwo);
    CHECK(more.refused.find("keys must be equal to: ids,x") != std::string::npos);
  }
}

TEST_CASE("predict_json: a tensor has at most 254 dimensions") {
  const auto nested = [](const char* form, size_t depth) {
    return std::string("{\"") + form + "\": " + std::string(depth, '[') + "1" +
           std::string(depth, ']') + "}";
  };
  for (const std::string end : {"", " x"}) {
    CHECK(TF_NumDims(parse(nested("instances", 254) + end, kOne).inputs.at("x").get()) == 254);
    for (const size_t depth : {255, 999}) {
      CHECK(parse(nested("instances", depth) + end, kOne).refused == "tensor parsing error: x");
      CHECK(parse(nested("inputs", depth) + end, kOne).refused == "tensor parsing error: x");
    }
  }
}

TEST_CASE("predict_json: refusals have TensorFlow Serving's texts") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"instances": []})", R"(JSON Value: {
    "instances": []
} No values in 'instances' array)"},
      {R"({"a": 1})", "Missing 'inputs' or 'instances' key"},
      {R"({"instances": [1, [2]]})",
       "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting shape "
       "[] but got: [1]"},
      {R"({"instances": [[1, 2], [3]]})",
       "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting "
       "tensor "
       "size: 2 but got: 1"},
      {R"({"instances": [[1, [2]]]})",
       "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: Encountered "
       "list "
       "at unexpected level: 1 expected < 1"},
      {R"({"instances": [[[1], 2]]})",
       "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: 2 "
       "found at incorrect level: 2 in the JSON DOM. Expected at level: 2"},
      {R"({"instances": ["a"]})",
       "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: "
       "\"a\" Type: String is not of expected type: float"},
      {R"({"instances": [{"y": 1}]})",
       "Failed to process element: 0 key: y of 'instances' list. Error: INVALID_ARGUMENT: JSON "
       "object: does not have named input: y"},
      {R"({"instances": [{"x": 1}, 2]})", "Expecting object but got list at item 1 of input list"},
  };
  for (const auto& [body, message] : cases) {
    CAPTURE(body);
    CHECK(parse(body, kOne).refused == message);
  }
  CHECK(
      parse(R"({"instances": [{"x": 1}]})", kTwo).refused ==
      "Failed to process element: 0 of 'instances' list. JSON object: {\n    \"x\": 1\n} keys must "
      "be equal to: ids,x");
  CHECK(parse(R"({"inputs": {"x": 1}})", kTwo).refused ==
        "Missing named input: ids in 'inputs' object.");
  const std::vector<JsonInput> small = {{"x", TF_INT32}};
  for (const char* value : {"2147483648", "-2147483649", "1.0", "true", "18446744073709551615"}) {
    CHECK(parse("{\"instances\": [" + std::string(value) + "]}", small).refused.find("Type: ") !=
          std::string::npos);
  }
}

TEST_CASE("predict_json: a number is written so that it reads back") {
  std::mt19937 random(3);
  for (int i = 0; i < 100000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    float value, back = 0;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) continue;
    std::string text;
    write_number(value, &text);
    back = std::strtof(text.c_str(), nullptr);
    REQUIRE(back == value);
  }
  std::string text;
  for (const float value : {2.0f, 0.1f, 1e30f, -0.0f, 1.0f / 3}) {
    write_number(value, &text);
    text += ' ';
  }
  CHECK(text == "2.0 0.1 1e+30 -0.0 0.333333343 ");
}

TEST_CASE("predict_json: replies have TensorFlow Serving's layout") {
  Tensor scores = make_tensor(TF_FLOAT, {2, 1});
  auto* const data = static_cast<float*>(TF_TensorData(scores.get()));
  data[0] = 0.5f;
  data[1] = 2.0f;
  const std::string a = "a", b = "b";
  CHECK(write_outputs({{&a, scores.get()}}, JsonForm::kRow) ==
        "{\n    \"predictions\": [[0.5], [2.0]\n    ]\n}");
  CHECK(
      write_outputs({{&a, scores.get()}}, JsonForm::kColumnar) ==
      "{\n    \"outputs\": [\n        [\n            0.5\n        ],\n        [\n            2.0\n "
      "       ]\n    ]\n}");
  CHECK(
      write_outputs({{&a, scores.get()}, {&b, scores.get()}}, JsonForm::kRow) ==
      "{\n    \"predictions\": [\n        {\n            \"a\": [0.5],\n            \"b\": [0.5]\n "
      "       },\n        {\n            \"a\": [2.0],\n            \"b\": [2.0]\n        }\n    "
      "]\n}");
}

TEST_CASE("predict_json: speed" * doctest::skip()) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::string body = "{\"instances\": [";
  for (int row = 0; row < 128; ++row) {
    body += row > 0 ? ",[" : "[";
    for (int i = 0; i < 429; ++i)
      body += (i > 0 ? "," : "") + std::to_string(uniform(random)) + "12345678";
    body += "]";
  }
  body += "]}";
  const size_t size = body.size();
  body.reserve(size + simdjson::SIMDJSON_PADDING);
  JsonParser parser;
  simdjson::dom::parser bare;
  for (int turn = 0; turn < 5; ++turn) {
    const auto clock = [] { return std::chrono::steady_clock::now(); };
    const auto start = clock();
    for (int i = 0; i < 50; ++i) (void)bare.parse(body.data(), size, false);
    const auto middle = clock();
    JsonForm form;
    for (int i = 0; i < 50; ++i) {
      parser.parse(std::string_view(body.data(), size),
                   [&](const auto& object) { read_inputs(object, kOne, &form); });
    }
    const auto end = clock();
    const auto us = [](auto span) {
      return std::chrono::duration<double, std::micro>(span).count() / 50;
    };
    std::printf("%zu bytes: bare %.0f us, with tensors %.0f us\n", size, us(middle - start),
                us(end - middle));
  }
}

}  // namespace hotrow_server
