// Predict on the wire: tensors of every type, in every form that clients may send, and back.
#include "wire/predict_wire.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "base/refused.h"
#include "tensorflow_serving/apis/predict.pb.h"
#include "tests/wire.h"

namespace hotrow_server {
namespace {

using tensorflow::TensorProto;
namespace serving = tensorflow::serving;

std::string varint(size_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

// A field of bytes.
std::string field(int number, const std::string& bytes) {
  return static_cast<char>(number << 3 | 2) + varint(bytes.size()) + bytes;
}

// A request with a tensor "x" in these bytes, which no client may ever write.
std::string request_with(const std::string& tensor) {
  return field(2, field(1, "x") + field(2, tensor));
}

// The tensor "x" in the server's reply; an empty proto: it is not a tensor.
TensorProto answer_to(const std::string& tensor, bool as_content = false, size_t piece = 0) {
  grpc::ByteBuffer buffer = buffer_of(request_with(tensor), piece);
  const PredictRequest request = read_predict_request(&buffer);
  const Tensor& x = request.inputs.at("x");
  if (x == nullptr) return {};
  const std::string alias = "y";
  serving::PredictResponse reply;
  REQUIRE(
      reply.ParseFromString(bytes_of(write_predict_response({{&alias, x.get()}}, as_content, ""))));
  return reply.outputs().at("y");
}

bool same(const TensorProto& got, const TensorProto& wanted) {
  return got.SerializeAsString() == wanted.SerializeAsString();
}

// With values `first` to `end` of three.
TensorProto values_of(const Kind& kind, int first, int end) {
  TensorProto proto;
  const auto* const reflection = TensorProto::GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(kind.values, &fields);
  REQUIRE(fields.size() == 1);
  proto = kind.values;
  const int entries = kind.entries;
  for (int i = 0; i < first * entries; ++i) {
    for (int j = 0; j + 1 < reflection->FieldSize(proto, fields[0]); ++j) {
      reflection->SwapElements(&proto, fields[0], j, j + 1);
    }
    reflection->RemoveLast(&proto, fields[0]);
  }
  for (int i = end; i < 3; ++i) {
    for (int j = 0; j < entries; ++j) reflection->RemoveLast(&proto, fields[0]);
  }
  return proto;
}

TensorProto with_shape(const Kind& kind, const TensorProto& values, int64_t size) {
  TensorProto proto = values;
  proto.MergeFrom(head_of(kind.type, {size}));
  return proto;
}

TEST_CASE("typed fields come back as they went") {
  for (const Kind& kind : all_kinds()) {
    CAPTURE(kind.type);
    const TensorProto typed = with_shape(kind, kind.values, 3);
    for (const size_t piece : {0, 1, 7}) {
      CHECK(same(answer_to(typed.SerializeAsString(), false, piece), typed));
    }
  }
}

TEST_CASE("tensor_content is read, and written when asked for") {
  for (const Kind& kind : all_kinds()) {
    if (kind.type == tensorflow::DT_STRING) continue;
    CAPTURE(kind.type);
    const TensorProto typed = with_shape(kind, kind.values, 3);
    TensorProto content = head_of(kind.type, {3});
    content.set_tensor_content(kind.memory);
    CHECK(same(answer_to(content.SerializeAsString()), typed));
    CHECK(same(answer_to(typed.SerializeAsString(), true), content));
    CHECK(same(answer_to(content.SerializeAsString(), true, 5), content));
  }
}

TEST_CASE("strings in tensor_content are lengths, then bytes; they come back as string_val") {
  TensorProto content = head_of(tensorflow::DT_STRING, {3});
  content.set_tensor_content(std::string("\x02\x00\x01", 3) + "abc");
  TensorProto typed = head_of(tensorflow::DT_STRING, {3});
  for (const char* value : {"ab", "", "c"}) typed.add_string_val(value);
  for (const bool as_content : {false, true}) {
    CHECK(same(answer_to(content.SerializeAsString(), as_content), typed));
  }
}

TEST_CASE("a short list repeats its last value, a long one is cut, an empty one means zeros") {
  for (const Kind& kind : all_kinds()) {
    CAPTURE(kind.type);
    TensorProto whole = head_of(kind.type, {5});
    whole.MergeFrom(kind.values);
    const TensorProto last = values_of(kind, 2, 3);
    whole.MergeFrom(last);
    whole.MergeFrom(last);
    CHECK(same(answer_to(with_shape(kind, kind.values, 5).SerializeAsString()), whole));
    const TensorProto first_two = with_shape(kind, values_of(kind, 0, 2), 2);
    CHECK(same(answer_to(with_shape(kind, kind.values, 2).SerializeAsString()), first_two));
    TensorProto zeros = head_of(kind.type, {3});
    const TensorProto answer = answer_to(zeros.SerializeAsString(), true);
    if (kind.type == tensorflow::DT_STRING) {
      for (int i = 0; i < 3; ++i) zeros.add_string_val("");
    } else {
      zeros.set_tensor_content(std::string(kind.memory.size(), '\0'));
    }
    CHECK(same(answer, zeros));
  }
}

TEST_CASE("the order of fields and the number of pieces make no difference") {
  for (const Kind& kind : all_kinds()) {
    CAPTURE(kind.type);
    const TensorProto whole = with_shape(kind, kind.values, 3);
    const std::string head = head_of(kind.type, {3}).SerializeAsString();
    const std::string first = values_of(kind, 0, 1).SerializeAsString();
    const std::string rest = values_of(kind, 1, 3).SerializeAsString();
    for (const std::string& tensor :
         {head + first + rest, first + rest + head, first + head + rest}) {
      CHECK(same(answer_to(tensor), whole));
    }
  }
}

TEST_CASE("scalars and empty tensors keep their shape") {
  TensorProto scalar = head_of(tensorflow::DT_FLOAT, {});
  scalar.add_float_val(2.5f);
  CHECK(same(answer_to(scalar.SerializeAsString()), scalar));
  const TensorProto empty = head_of(tensorflow::DT_FLOAT, {0, 3});
  CHECK(same(answer_to(empty.SerializeAsString()), empty));
}

TEST_CASE("what is no tensor is null") {
  const int64_t huge = int64_t{1} << 62;
  std::map<std::string, TensorProto> cases;
  cases["no data type"] = head_of(tensorflow::DT_INVALID, {});
  cases["an unknown data type"] = head_of(static_cast<tensorflow::DataType>(4711), {});
  cases["a resource"] = head_of(tensorflow::DT_RESOURCE, {});
  cases["a reference"] = head_of(tensorflow::DT_FLOAT_REF, {});
  cases["7 bytes"] = head_of(tensorflow::DT_INT64, {});
  cases["7 bytes"].set_tensor_content("1234567");
  cases["short text"] = head_of(tensorflow::DT_STRING, {});
  cases["short text"].set_tensor_content(
      "\x02"
      "a");
  cases["half a length"] = head_of(tensorflow::DT_STRING, {});
  cases["half a length"].set_tensor_content("\xff");
  cases["a negative size"] = head_of(tensorflow::DT_FLOAT, {-1});
  cases["a huge size"] = head_of(tensorflow::DT_FLOAT, {huge, 8});
  cases["huge, then none"] = head_of(tensorflow::DT_FLOAT, {huge, 2, 0});
  cases["more than any memory"] = head_of(tensorflow::DT_FLOAT, {int64_t{1} << 45});
  cases["as many strings"] = head_of(tensorflow::DT_STRING, {int64_t{1} << 50});
  cases["255 dimensions"] = head_of(tensorflow::DT_FLOAT, std::vector<int64_t>(255, 1));
  for (const auto& [name, proto] : cases) {
    CAPTURE(name);
    CHECK(answer_to(proto.SerializeAsString()).dtype() == tensorflow::DT_INVALID);
  }
  TensorProto most = head_of(tensorflow::DT_FLOAT, std::vector<int64_t>(254, 1));
  most.add_float_val(1);
  CHECK(same(answer_to(most.SerializeAsString()), most));
}

TEST_CASE("large tensors come back as they were") {
  TensorProto floats = head_of(tensorflow::DT_FLOAT, {300, 1000});
  TensorProto integers = head_of(tensorflow::DT_INT64, {100'000});
  TensorProto texts = head_of(tensorflow::DT_STRING, {20'000});
  for (int i = 0; i < 300'000; ++i) floats.add_float_val(static_cast<float>(i) / 7);
  for (int64_t i = 0; i < 100'000; ++i) integers.add_int64_val((i - 50'000) * i * i * i);
  for (size_t i = 0; i < 20'000; ++i) texts.add_string_val(std::string(i % 37, 'x'));
  for (const TensorProto& proto : {floats, integers, texts}) {
    CHECK(same(answer_to(proto.SerializeAsString(), false, 1000), proto));
  }
}

TEST_CASE("a request has its spec, its inputs and its filter") {
  serving::PredictRequest sent;
  sent.mutable_model_spec()->set_name("m");
  sent.mutable_model_spec()->mutable_version()->set_value(7);
  for (const char* alias : {"a", "b"}) {
    (*sent.mutable_inputs())[alias] = head_of(tensorflow::DT_FLOAT, {1});
  }
  sent.add_output_filter("y");
  sent.add_output_filter("z");
  // An unknown field is ignored.
  grpc::ByteBuffer buffer = buffer_of(sent.SerializeAsString() + field(15, "new"), 3);
  const PredictRequest request = read_predict_request(&buffer);
  REQUIRE(request.spec.has_value());
  CHECK(request.spec->name() == "m");
  CHECK(request.spec->version().value() == 7);
  CHECK(request.inputs.size() == 2);
  CHECK(request.output_filter == std::vector<std::string>{"y", "z"});
  grpc::ByteBuffer nothing = buffer_of("");
  CHECK(!read_predict_request(&nothing).spec.has_value());
}

TEST_CASE("of inputs of the same name the last one counts") {
  TensorProto first = head_of(tensorflow::DT_FLOAT, {}), last = first;
  first.add_float_val(1);
  last.add_float_val(2);
  grpc::ByteBuffer buffer =
      buffer_of(request_with(first.SerializeAsString()) + request_with(last.SerializeAsString()));
  const PredictRequest request = read_predict_request(&buffer);
  REQUIRE(request.inputs.size() == 1);
  CHECK(*static_cast<float*>(TF_TensorData(request.inputs.at("x").get())) == 2);
}

TEST_CASE("bytes that are no request are refused with INTERNAL") {
  TensorProto proto = head_of(tensorflow::DT_FLOAT, {});
  proto.add_float_val(1);
  const std::string whole = request_with(proto.SerializeAsString());
  std::map<std::string, std::string> cases{
      {"a name that is no text", field(2, field(1, "\xff") + field(2, ""))},
      {"a filter that is no text", field(3, "\xff")},
      {"a spec that is none", field(1, "\xff")},
      {"a tensor that is none", request_with("\xff")},
      {"field 0", std::string("\x02\x00", 2)},
  };
  for (size_t size = 1; size < whole.size(); ++size) {
    cases["cut after " + std::to_string(size)] = whole.substr(0, size);
  }
  for (const auto& [name, bytes] : cases) {
    CAPTURE(name);
    grpc::ByteBuffer buffer = buffer_of(bytes);
    try {
      read_predict_request(&buffer);
      FAIL_CHECK("was read");
    } catch (const Refused& refused) {
      CHECK(refused.code() == grpc::StatusCode::INTERNAL);
      CHECK(std::string(refused.what()) == "the request is no message of this method");
    }
  }
}

TEST_CASE("an output without a wire form is named") {
  const Tensor tensor(TF_AllocateTensor(TF_QINT8, nullptr, 0, 1));
  const std::string alias = "y";
  CHECK_THROWS_WITH_AS(write_predict_response({{&alias, tensor.get()}}, false, ""),
                       "output y: data type DT_QINT8 has no wire form", Refused);
}

}  // namespace
}  // namespace hotrow_server
