#include "rest/examples_json.h"

#include "base/refused.h"
#include "base/utf8.h"
#include "rest/json_column.h"
#include "rest/json_text.h"
#include "tensorflow/core/example/example.pb.h"
#include "tensorflow/core/example/feature.pb.h"

namespace hotrow_server {
namespace {

using tensorflow::Feature;

const char* name_of(Feature::KindCase kind) {
  switch (kind) {
    case Feature::kInt64List:
      return "int64";
    case Feature::kFloatList:
      return "float";
    default:
      return "bytes";
  }
}

void check_kind(Feature::KindCase kind, const std::string& name, const Feature& feature) {
  const Feature::KindCase present = feature.kind_case();
  if (present == kind || present == Feature::KIND_NOT_SET) return;
  refuse("Unexpected element type in feature: " + name + " expecting type: " + name_of(present));
}

void add_whole(int64_t value, const std::string& name, Feature* feature) {
  check_kind(Feature::kInt64List, name, *feature);
  feature->mutable_int64_list()->add_value(value);
}

void add_number(const JsonNumber& number, const std::string& name, Feature* feature) {
  switch (number.type) {
    case JsonNumber::Type::kInt64:
      return add_whole(number.signed_value, name, feature);
    case JsonNumber::Type::kUint64:
      refuse("Feature: " + name + " has uint64_t element. Only int64_t is supported.");
    default:
      check_kind(Feature::kFloatList, name, *feature);
      feature->mutable_float_list()->add_value(static_cast<float>(number.decimal));
  }
}

void add_bytes(std::string value, const std::string& name, Feature* feature) {
  check_kind(Feature::kBytesList, name, *feature);
  feature->mutable_bytes_list()->add_value(std::move(value));
}

template <typename Json>
void add(const Json& value, const std::string& name, Feature* feature) {
  const JsonKind kind = value.kind();
  if (kind == JsonKind::kNumber) return add_number(value.number(), name, feature);
  if (kind == JsonKind::kString) return add_bytes(std::string(value.text()), name, feature);
  if (is_base64(value)) return add_bytes(read_base64(value), name, feature);
  if (kind != JsonKind::kTrue && kind != JsonKind::kFalse) {
    refuse("Feature: " + name +
           " has element with unexpected JSON type: " + hotrow_server::name_of(kind));
  }
  add_whole(value.boolean() ? 1 : 0, name, feature);
}

template <typename Json>
void read_example(const Json& value, tensorflow::Example* example) {
  if (value.kind() != JsonKind::kObject) {
    refuse(std::string("Example must be JSON object but got JSON ") +
           hotrow_server::name_of(value.kind()));
  }
  if (value.size() == 0) return;
  auto& features = *example->mutable_features()->mutable_feature();
  value.each_member([&features](std::string_view key, const Json& content) {
    const std::string name(key);
    // A map of protobuf takes no other.
    if (!is_utf8(name)) refuse("Feature: " + name + " has a name that is not UTF-8");
    Feature& feature = features[name];
    feature.Clear();  // the last of several
    if (content.kind() != JsonKind::kArray) return add(content, name, &feature);
    content.each_item([&](const Json& item) { add(item, name, &feature); });
  });
}

constexpr char kBegin[] = "{\n    \"results\": [";

}  // namespace

template <typename Json>
tensorflow::serving::Input read_examples(const Json& body) {
  const auto rows = body.member("examples");
  if (!rows) {
    refuse("JSON Value: " + shown(body) +
           " When method is classify, key 'examples' is expected and was not found");
  }
  if (rows->kind() != JsonKind::kArray) {
    refuse("JSON Value: " + shown(body) + " Expecting 'examples' value to be an list/array");
  }
  if (rows->size() == 0) {
    refuse("JSON Value: " + shown(body) + " 'examples' value is an empty array");
  }
  tensorflow::serving::Input input;
  google::protobuf::RepeatedPtrField<tensorflow::Example>* examples = nullptr;
  if (const auto context = body.member("context")) {
    auto* const with_context = input.mutable_example_list_with_context();
    read_example(*context, with_context->mutable_context());
    examples = with_context->mutable_examples();
  } else {
    examples = input.mutable_example_list()->mutable_examples();
  }
  rows->each_item([examples](const Json& row) { read_example(row, examples->Add()); });
  return input;
}

std::string write_classes(const tensorflow::serving::ClassificationResult& result) {
  std::string body = kBegin;
  for (const auto& row : result.classifications()) {
    if (&row != &result.classifications(0)) body += ", ";
    body += '[';
    for (const auto& one : row.classes()) {
      body += &one == &row.classes(0) ? "[" : ", [";
      write_string(one.label(), &body);
      body += ", ";
      write_number(one.score(), &body);
      body += ']';
    }
    body += ']';
  }
  return body + "\n    ]\n}";
}

std::string write_values(const tensorflow::serving::RegressionResult& result) {
  std::string body = kBegin;
  for (const auto& one : result.regressions()) {
    if (&one != &result.regressions(0)) body += ", ";
    write_number(one.value(), &body);
  }
  return body + "]\n}";
}

template tensorflow::serving::Input read_examples(const FastJson& body);
template tensorflow::serving::Input read_examples(const LiberalJson& body);

}  // namespace hotrow_server
