// Random bytes for what the REST port reads from clients: bodies of :predict, :classify and
// :regress, paths, and compressed bodies. The first byte chooses the target. What is read must not
// depend on the parser, and must come back the same from what is written.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/refused.h"
#include "base/utf8.h"
#include "http/content_coding.h"
#include "rest/examples_json.h"
#include "rest/json_document.h"
#include "rest/json_text.h"
#include "rest/path.h"
#include "rest/predict_json.h"

namespace hotrow_server {
namespace {

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

// The result of a call, as text: "refused: .." when it refused what a client sent.
template <typename Call>
std::string outcome(Call&& call) {
  try {
    return call();
  } catch (const Refused& error) {
    expect(error.code() == grpc::StatusCode::INVALID_ARGUMENT ||
               error.code() == grpc::StatusCode::UNIMPLEMENTED,
           error.what());
    expect(is_utf8(error_text(error.what())), "a refusal is not UTF-8");
    return std::string("refused: ") + error.what();
  }
}

bool is_refusal(const std::string& text) { return text.starts_with("refused: "); }

// Parts of JSON by byte, so that the input need not find them letter by letter.
std::string as_tokens(const std::string& bytes) {
  static constexpr const char* kTokens[] = {"{",
                                            "}",
                                            "[",
                                            "]",
                                            ",",
                                            ":",
                                            " ",
                                            "\n",
                                            "\"x\"",
                                            "\"ids\"",
                                            "\"s\"",
                                            "\"b64\"",
                                            "1",
                                            "-2",
                                            "2.5",
                                            "1e300",
                                            "true",
                                            "false",
                                            "null",
                                            "NaN",
                                            "-Infinity",
                                            "\"\"",
                                            "\"aGk=\"",
                                            "\"\\u00e9\"",
                                            "\"\\ud800\"",
                                            "\"a\\\"b\"",
                                            "0",
                                            "-0",
                                            "9223372036854775807",
                                            "9223372036854775808",
                                            "-9223372036854775809",
                                            "18446744073709551616",
                                            "16777217.0",
                                            "1e-46",
                                            "\"instances\":",
                                            "\"inputs\":",
                                            "\"examples\":",
                                            "\"context\":",
                                            "\"signature_name\":",
                                            "{\"instances\":[",
                                            "{\"inputs\":{",
                                            "{\"examples\":[{",
                                            "]}",
                                            "}]}",
                                            "],[",
                                            "},{",
                                            "\"x\":",
                                            "\"ids\":",
                                            "\"s\":",
                                            "{\"b64\":\"",
                                            "\"}",
                                            "\xff",
                                            "\"\xc3\xa9\"",
                                            "\\"};
  constexpr int kRepeat = 250, kTimes = 90;  // bytes that repeat the one before
  std::string text, last;
  for (const char byte : bytes) {
    const auto at = static_cast<unsigned char>(byte);
    if (at < kRepeat) last = kTokens[at % std::size(kTokens)];
    for (int i = 0; i < (at < kRepeat ? 1 : kTimes); ++i) text += last;
  }
  return text;
}

template <typename Read>
std::string parsed(const std::string& body, Read&& read) {
  // Exactly the bytes that a parser may read, for ASan.
  std::vector<char> padded(body.begin(), body.end());
  padded.resize(body.size() + simdjson::SIMDJSON_PADDING);
  return outcome([&] {
    std::string result;
    JsonParser().parse(std::string_view(padded.data(), body.size()),
                       [&](const auto& object) { result = read(object); });
    return result;
  });
}

// simdjson takes no text behind the object, so that RapidJSON reads the second body.
template <typename Read>
std::string parsed_alike(const std::string& body, Read&& read) {
  const std::string first = parsed(body, read), second = parsed(body + " x", read);
  const bool is_broken = first.find("JSON Parse error") != std::string::npos ||
                         second.find("JSON Parse error") != std::string::npos;
  expect(is_broken || first == second, "by simdjson:\n" + first + "\nby RapidJSON:\n" + second);
  return first;
}

using Inputs = std::map<std::string, Tensor>;

std::string columns_of(const Inputs& inputs) {
  std::vector<NamedOutput> outputs;
  for (const auto& [alias, tensor] : inputs) outputs.push_back({&alias, tensor.get()});
  return write_outputs(outputs, JsonForm::kColumnar);
}

void fuzz_predict(bool several, const std::string& body) {
  static const std::vector<JsonInput> kOne = {{"x", TF_FLOAT}};
  static const std::vector<JsonInput> kAll = {
      {"half", TF_HALF}, {"ids", TF_INT64}, {"s", TF_STRING}, {"x", TF_FLOAT}};
  static const std::vector<JsonInput> kSome(kAll.begin() + 1, kAll.end());
  const auto& inputs = several ? (body.size() % 8 == 0 ? kAll : kSome) : kOne;
  Inputs kept;
  const auto read = [&](const auto& object) {
    const std::string name = signature_name(object);
    JsonForm form{};
    kept = read_inputs(object, inputs, &form);
    return name + columns_of(kept);
  };
  if (is_refusal(parsed_alike(body, read)) || kept.empty()) return;
  // The reply in columns is a request.
  const std::string reply = columns_of(kept);
  constexpr std::string_view kOutputs = "\"outputs\"";
  std::string again = reply;
  again.replace(again.find(kOutputs), kOutputs.size(), "\"inputs\"");
  const std::string back = parsed(again, [&](const auto& object) {
    JsonForm form{};
    return columns_of(read_inputs(object, inputs, &form));
  });
  expect(back == reply, "read:\n" + reply + "\nread again:\n" + back);
}

std::string bytes_of(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

void fuzz_examples(const std::string& body) {
  parsed_alike(body, [](const auto& object) { return bytes_of(read_examples(object)); });
}

std::string encoded(const std::string& text) {
  std::string percent;
  char code[4];
  for (const char byte : text) {
    std::snprintf(code, sizeof(code), "%%%02x", static_cast<unsigned>(byte) & 0xff);
    percent += code;
  }
  return percent;
}

void fuzz_path(const std::string& target) {
  static constexpr const char* kParts[] = {"/v1/models", "/",   "name",     "/versions/",
                                           "/labels/",   "12",  ":predict", ":",
                                           "/metadata",  "%2F", "%"};
  std::string made;
  for (const char byte : target) {
    const auto at = static_cast<unsigned char>(byte);
    made += at < 128 ? std::string(kParts[at % std::size(kParts)]) : std::string(1, byte);
  }
  for (const std::string& path : {target, "/v1/models/" + target, "/v1/models" + made}) {
    for (const char* const verb : {"GET", "POST"}) {
      outcome([&] {
        const RestPath found = read_path(verb, path);
        if (found.kind == RestPath::Kind::kModels) return "";
        const auto& spec = found.spec;
        expect(is_utf8(spec.name()) && is_utf8(spec.version_label()), "a name is not UTF-8");
        std::string same = "/V1/MODELS/" + encoded(spec.name());
        if (spec.has_version()) same += "/versions/" + std::to_string(spec.version().value());
        if (!spec.version_label().empty()) same += "/labels/" + encoded(spec.version_label());
        expect(bytes_of(read_path("GET", same).spec) == bytes_of(spec), same);
        return "";
      });
    }
  }
}

void fuzz_coding(const char* coding, const std::string& bytes) {
  constexpr size_t kMost = size_t{1} << 20;
  const auto uncompress = [&](const std::string& body) {
    return outcome([&] {
      const std::optional<Body> plain = uncompressed(body, coding, kMost);
      expect(plain.has_value() && plain->size() <= kMost, "a body is longer than allowed");
      return std::string(plain->view());
    });
  };
  uncompress(bytes);
  std::string reply = bytes + std::string(1024, 'x') + bytes;
  const std::string before = reply;
  expect(compress(&reply, coding) == std::string(coding), "a reply is not compressed");
  expect(uncompress(reply) == before, "a compressed reply does not come back");
  // Damage at places that the input chooses.
  for (size_t at = 0; at + 2 < std::min<size_t>(bytes.size(), 24); at += 3) {
    const size_t place =
        (static_cast<unsigned char>(bytes[at]) << 8 | static_cast<unsigned char>(bytes[at + 1])) %
        reply.size();
    reply[place] = bytes[at + 2];
  }
  uncompress(reply + reply);
}

}  // namespace
}  // namespace hotrow_server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hotrow_server;
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 10) {
    case 0:
    case 1:
      fuzz_predict(data[0] % 2 == 0, bytes);
      break;
    case 2:
    case 3:
    case 4:
      fuzz_predict(data[0] % 2 == 0, as_tokens(bytes));
      break;
    case 5:
      fuzz_examples(bytes);
      break;
    case 6:
      fuzz_examples(as_tokens(bytes));
      break;
    case 7:
      fuzz_path(bytes);
      break;
    default:
      fuzz_coding(data[0] % 2 == 0 ? "gzip" : "zstd", bytes);
      std::string accepted = bytes;
      std::string reply(2000, 'x');
      compress(&reply, accepted);
  }
  return 0;
}
