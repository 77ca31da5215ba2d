#include "rest/predict_json.h"

#include <absl/strings/escaping.h>

#include <algorithm>
#include <optional>

#include "base/refused.h"
#include "rest/json_column.h"
#include "rest/json_text.h"
#include "tensorflow/core/framework/types.pb.h"

namespace hotrow_server {
namespace {

template <typename Json>
bool is_named(const Json& value) {
  return value.kind() == JsonKind::kObject && !is_base64(value);
}

template <typename Json>
Tensor tensor_of(JsonColumn<Json>* column, std::optional<int64_t> rows, const std::string& alias) {
  Tensor tensor = column->tensor(rows);
  if (tensor == nullptr) refuse("tensor parsing error: " + alias);
  return tensor;
}

// The columns of a request in rows. Members of a row mostly have the order of the row before.
template <typename Json>
class Rows {
 public:
  explicit Rows(const std::vector<JsonInput>& inputs)
      : inputs_(inputs), order_(inputs.size()), last_(inputs.size(), -1) {
    for (const JsonInput& input : inputs) columns_.emplace_back(input.type);
  }

  void add(int64_t at, const Json& row, bool named) {
    if (!named) {
      add_value(at, "", columns_[0], row);
      return;
    }
    size_t members = 0;
    bool repeats = false;  // a member: its column would have more values than rows
    row.each_member([&](std::string_view name, const Json& value) {
      const std::string key = "key: " + std::string(name) + " ";
      const size_t place = place_of(name, members);
      if (place == inputs_.size()) {
        fail(at, key, grpc::StatusCode::INVALID_ARGUMENT,
             "JSON object: does not have named input: " + std::string(name));
      }
      if (members < order_.size()) order_[members] = place;
      ++members;
      repeats = repeats || last_[place] == at;
      last_[place] = at;
      add_value(at, key, columns_[place], value);
    });
    if (members == inputs_.size() && !repeats) return;
    std::string names;
    for (const JsonInput& input : inputs_) {
      if (!names.empty()) names += ',';
      names += input.alias;
    }
    refuse("Failed to process element: " + std::to_string(at) +
           " of 'instances' list. JSON object: " + shown(row) + " keys must be equal to: " + names);
  }

  std::map<std::string, Tensor> tensors(int64_t rows) {
    std::map<std::string, Tensor> all;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::string alias(inputs_[i].alias);
      all.emplace(alias, tensor_of(&columns_[i], rows, alias));
    }
    return all;
  }

 private:
  // The number of the inputs if there is none of this name.
  size_t place_of(std::string_view name, size_t member) const {
    if (member < order_.size() && inputs_[order_[member]].alias == name) return order_[member];
    const auto found = std::lower_bound(
        inputs_.begin(), inputs_.end(), name,
        [](const JsonInput& input, std::string_view to) { return input.alias < to; });
    const bool is_there = found != inputs_.end() && found->alias == name;
    return is_there ? static_cast<size_t>(found - inputs_.begin()) : inputs_.size();
  }

  static void add_value(int64_t at, const std::string& key, JsonColumn<Json>& column,
                        const Json& value) {
    try {
      column.add(value);
    } catch (const Refused& error) {
      fail(at, key, error.code(), error.what());
    }
  }

  [[noreturn]] static void fail(int64_t at, const std::string& key, grpc::StatusCode code,
                                const std::string& why) {
    const bool is_missing = code == grpc::StatusCode::UNIMPLEMENTED;
    throw Refused(code, "Failed to process element: " + std::to_string(at) + " " + key +
                            "of 'instances' list. Error: " +
                            (is_missing ? "UNIMPLEMENTED" : "INVALID_ARGUMENT") + ": " + why);
  }

  const std::vector<JsonInput>& inputs_;
  std::vector<JsonColumn<Json>> columns_;
  std::vector<size_t> order_;
  std::vector<int64_t> last_;  // row with each input
};

template <typename Json>
std::map<std::string, Tensor> read_rows(const Json& rows, const std::vector<JsonInput>& inputs) {
  if (rows.first().kind() != JsonKind::kObject && inputs.size() > 1) {
    refuse(
        "instances is a plain list, but expecting list of objects as multiple input tensors "
        "required as per tensorinfo_map");
  }
  const bool named = is_named(rows.first());
  Rows<Json> columns(inputs);
  int64_t at = 0;
  rows.each_item([&](const Json& row) {
    if (named != is_named(row)) {
      refuse((named ? "Expecting object but got list at item "
                    : "Expecting value/list but got object at item ") +
             std::to_string(at) + " of input list");
    }
    columns.add(at, row, named);
    ++at;
  });
  return columns.tensors(at);
}

template <typename Json>
std::map<std::string, Tensor> read_columns(const Json& value,
                                           const std::vector<JsonInput>& inputs) {
  const bool named = is_named(value);
  if (!named && inputs.size() > 1) {
    refuse(
        "inputs is a plain value/list, but expecting an object as multiple input tensors required "
        "as per tensorinfo_map");
  }
  std::map<std::string, Tensor> tensors;
  for (const JsonInput& input : inputs) {
    const std::string alias(input.alias);
    const std::optional<Json> given = named ? value.member(alias) : value;
    if (!given) refuse("Missing named input: " + alias + " in 'inputs' object.");
    JsonColumn<Json> column(input.type);
    column.add(*given);
    tensors.emplace(alias, tensor_of(&column, std::nullopt, alias));
  }
  return tensors;
}

// --- replies -------------------------------------------------------------------------------------

constexpr std::string_view kIndent = "    ";

void indent(int depth, std::string* to) {
  for (int i = 0; i < depth; ++i) *to += kIndent;
}

// Writes a tensor's values one after the other.
class Values {
 public:
  explicit Values(const NamedOutput& output)
      : tensor_(output.tensor), type_(TF_TensorType(tensor_)) {
    const std::string& alias = *output.alias;
    constexpr std::string_view kBytes = "_bytes";
    is_base64_ = alias.size() >= kBytes.size() &&
                 alias.compare(alias.size() - kBytes.size(), kBytes.size(), kBytes) == 0;
    for (int d = 0; d < TF_NumDims(tensor_); ++d) shape_.push_back(TF_Dim(tensor_, d));
    switch (type_) {
      case TF_FLOAT:
      case TF_DOUBLE:
      case TF_INT8:
      case TF_INT16:
      case TF_INT32:
      case TF_INT64:
      case TF_UINT8:
      case TF_UINT32:
      case TF_UINT64:
      case TF_BOOL:
      case TF_STRING:
        return;
      default: {
        std::string name = tensorflow::DataType_Name(static_cast<tensorflow::DataType>(type_));
        if (name.rfind("DT_", 0) == 0) name.erase(0, 3);
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        refuse("Failed to write JSON value for tensor type: " + name);
      }
    }
  }

  const std::vector<int64_t>& shape() const { return shape_; }

  // The next values, from dimension d on, on one line.
  void write_line(size_t d, std::string* to) {
    if (d == shape_.size()) return write_value(to);
    *to += '[';
    for (int64_t i = 0; i < shape_[d]; ++i) {
      if (i > 0) *to += ", ";
      write_line(d + 1, to);
    }
    *to += ']';
  }
  // The same, each value on a line of its own.
  void write_lines(size_t d, int depth, std::string* to) {
    if (d == shape_.size()) return write_value(to);
    if (shape_[d] == 0) {
      *to += "[]";
      return;
    }
    *to += "[\n";
    for (int64_t i = 0; i < shape_[d]; ++i) {
      if (i > 0) *to += ",\n";
      indent(depth + 1, to);
      write_lines(d + 1, depth + 1, to);
    }
    *to += '\n';
    indent(depth, to);
    *to += ']';
  }

 private:
  template <typename Value>
  Value take() {
    return static_cast<const Value*>(TF_TensorData(tensor_))[next_++];
  }

  void write_value(std::string* to) {
    switch (type_) {
      case TF_FLOAT:
        return write_number(take<float>(), to);
      case TF_DOUBLE:
        return write_number(take<double>(), to);
      case TF_INT8:
        return write_whole(take<int8_t>(), to);
      case TF_INT16:
        return write_whole(take<int16_t>(), to);
      case TF_INT32:
        return write_whole(take<int32_t>(), to);
      case TF_INT64:
        return write_whole(take<int64_t>(), to);
      case TF_UINT8:
        return write_whole(take<uint8_t>(), to);
      case TF_UINT32:
        return write_whole(take<uint32_t>(), to);
      case TF_UINT64:
        return write_whole(take<uint64_t>(), to);
      case TF_BOOL:
        *to += take<bool>() ? "true" : "false";
        return;
      default:
        return write_bytes(string_at(tensor_, next_++), to);
    }
  }
  template <typename Value>
  static void write_whole(Value value, std::string* to) {
    *to += std::to_string(value);
  }
  void write_bytes(const std::string& value, std::string* to) const {
    if (!is_base64_) return write_string(value, to);
    *to += "{\"b64\": \"";
    *to += absl::Base64Escape(value);
    *to += "\"}";
  }

  const TF_Tensor* const tensor_;
  const TF_DataType type_;
  bool is_base64_;
  std::vector<int64_t> shape_;
  size_t next_ = 0;
};

int64_t row_count(const std::vector<NamedOutput>& outputs, const std::vector<Values>& values) {
  int64_t rows = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = "Tensor name: " + *outputs[i].alias;
    if (values[i].shape().empty()) refuse(name + " has no shape information ");
    const int64_t size = values[i].shape()[0];
    if (size < 1) refuse(name + " has invalid batch size: " + std::to_string(size));
    if (rows != 0 && rows != size) {
      refuse(name + " has inconsistent batch size: " + std::to_string(size) +
             " expecting: " + std::to_string(rows));
    }
    rows = size;
  }
  return rows;
}

void write_key(const std::string& alias, int depth, std::string* to) {
  indent(depth, to);
  write_string(alias, to);
  *to += ": ";
}

void write_rows(const std::vector<NamedOutput>& outputs, std::vector<Values>* values,
                std::string* to) {
  const int64_t rows = row_count(outputs, *values);
  *to += "{\n    \"predictions\": [";
  for (int64_t row = 0; row < rows; ++row) {
    if (outputs.size() == 1) {
      if (row > 0) *to += ", ";
      (*values)[0].write_line(1, to);
      continue;
    }
    *to += row > 0 ? ",\n" : "\n";
    indent(2, to);
    *to += "{\n";
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (i > 0) *to += ",\n";
      write_key(*outputs[i].alias, 3, to);
      (*values)[i].write_line(1, to);
    }
    *to += '\n';
    indent(2, to);
    *to += '}';
  }
  *to += "\n    ]\n}";
}

void write_columns(const std::vector<NamedOutput>& outputs, std::vector<Values>* values,
                   std::string* to) {
  *to += "{\n    \"outputs\": ";
  if (outputs.size() == 1) {
    (*values)[0].write_lines(0, 1, to);
  } else {
    *to += "{\n";
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (i > 0) *to += ",\n";
      write_key(*outputs[i].alias, 2, to);
      (*values)[i].write_lines(0, 2, to);
    }
    *to += "\n    }";
  }
  *to += "\n}";
}

}  // namespace

template <typename Json>
std::string signature_name(const Json& body) {
  const auto name = body.member("signature_name");
  if (!name) return "";
  if (name->kind() != JsonKind::kString) {
    refuse("JSON Value: " + shown(body) +
           " not formatted correctly. 'signature_name' key must be a string value.");
  }
  return std::string(name->text());
}

template <typename Json>
std::map<std::string, Tensor> read_inputs(const Json& body, const std::vector<JsonInput>& inputs,
                                          JsonForm* form) {
  const auto rows = body.member("instances"), columns = body.member("inputs");
  if (rows && columns) {
    refuse("JSON Value: " + shown(body) +
           " Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ");
  }
  if (!rows && !columns) refuse("Missing 'inputs' or 'instances' key");
  *form = rows ? JsonForm::kRow : JsonForm::kColumnar;
  if (columns) return read_columns(*columns, inputs);
  if (rows->kind() != JsonKind::kArray) {
    refuse("JSON Value: " + shown(body) + " Expecting 'instances' to be an list/array");
  }
  if (rows->size() == 0) refuse("JSON Value: " + shown(body) + " No values in 'instances' array");
  return read_rows(*rows, inputs);
}

std::string write_outputs(const std::vector<NamedOutput>& outputs, JsonForm form) {
  if (outputs.empty()) refuse("Cannot convert empty tensor map to JSON");
  std::vector<Values> values(outputs.begin(), outputs.end());
  std::string body;
  if (form == JsonForm::kRow) {
    write_rows(outputs, &values, &body);
  } else {
    write_columns(outputs, &values, &body);
  }
  return body;
}

template std::string signature_name(const FastJson& body);
template std::string signature_name(const LiberalJson& body);
template std::map<std::string, Tensor> read_inputs(const FastJson&, const std::vector<JsonInput>&,
                                                   JsonForm*);
template std::map<std::string, Tensor> read_inputs(const LiberalJson&,
                                                   const std::vector<JsonInput>&, JsonForm*);

}  // namespace hotrow_server
