#include "rest/model_json.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver.h>
#include <google/protobuf/util/type_resolver_util.h>

#include "base/refused.h"
#include "rest/json_text.h"

namespace hotrow_server {
namespace {

namespace protobuf = google::protobuf;

// Maps in the order of their keys, unlike MessageToJsonString's.
std::string serialized(const protobuf::Message& message) {
  std::string bytes;
  protobuf::io::StringOutputStream stream(&bytes);
  protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

// The message as TensorFlow Serving writes it: the names of its fields as in the file, fields that
// have their default, too, an entry a line; lines but the first are indented by `depth`.
std::string plain(const protobuf::Message& message, size_t depth) {
  constexpr char kUrl[] = "type.googleapis.com";
  static protobuf::util::TypeResolver* const resolver =
      protobuf::util::NewTypeResolverForDescriptorPool(kUrl,
                                                       protobuf::DescriptorPool::generated_pool());
  protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = protobuf::util::BinaryToJsonString(
      resolver, std::string(kUrl) + "/" + message.GetDescriptor()->full_name(), serialized(message),
      &text, options);
  if (!status.ok()) {
    throw Refused(grpc::StatusCode::INTERNAL,
                  message.GetDescriptor()->name() + " as JSON: " + status.ToString());
  }
  while (text.ends_with('\n')) text.pop_back();
  std::string indented;
  for (const char letter : text) {
    indented += letter;
    if (letter == '\n') indented.append(depth, ' ');
  }
  return indented;
}

}  // namespace

std::string status_json(const tensorflow::serving::GetModelStatusResponse& status) {
  return plain(status, 0);
}

std::string models_json(const hotrow::Statuses& statuses) {
  std::string text = "{\n \"models\": [";
  bool is_first = true;
  for (const auto& model : statuses.models()) {
    if (!model.configured()) continue;
    if (!is_first) text += ',';
    is_first = false;
    text += "\n  {\n   \"name\": ";
    write_string(model.name(), &text);
    constexpr size_t kDepth = 2;
    text += ',';
    text += plain(model.versions(), kDepth).substr(1);  // without its "{"
  }
  return text + (is_first ? "]\n}" : "\n ]\n}");
}

std::string metadata_json(const tensorflow::serving::GetModelMetadataResponse& response) {
  tensorflow::serving::SignatureDefMap signatures;
  const auto found = response.metadata().find("signature_def");
  if (found == response.metadata().end() || !found->second.UnpackTo(&signatures)) {
    throw Refused(grpc::StatusCode::INTERNAL, "the metadata has no signature_def");
  }
  return "{\n \"model_spec\": " + plain(response.model_spec(), 1) +
         ",\n \"metadata\": {\n  \"signature_def\": " + plain(signatures, 2) + "\n }\n}";
}

}  // namespace hotrow_server
