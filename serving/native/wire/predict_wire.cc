#include "wire/predict_wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "base/refused.h"
#include "base/utf8.h"
#include "wire/fields.h"
#include "wire/tensor_reader.h"
#include "wire/tensor_writer.h"

namespace hotrow_server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// Of PredictRequest.
constexpr int kSpec = 1, kInputs = 2, kFilter = 3;
// Of PredictResponse.
constexpr int kOutputs = 1, kUsedSpec = 2;
// Of an entry of a map.
constexpr int kKey = 1, kValue = 2;

// As in protobuf: text that is not UTF-8 is refused.
bool read_string(CodedInputStream* in, std::string* value) {
  uint32_t bytes;
  return in->ReadVarint32(&bytes) && in->ReadString(value, static_cast<int>(bytes)) &&
         is_utf8(*value);
}

// The input at the stream's place, an entry of a map.
bool read_input(CodedInputStream* in, grpc::ByteBuffer* buffer, PredictRequest* request) {
  uint32_t bytes;
  if (!in->ReadVarint32(&bytes)) return false;
  const auto limit = in->PushLimit(static_cast<int>(bytes));
  std::string alias;
  Tensor tensor;
  for (uint32_t tag; (tag = in->ReadTag()) != 0;) {
    if (tag == delimited(kKey)) {
      if (!read_string(in, &alias)) return false;
    } else if (tag == delimited(kValue)) {
      if (!read_tensor(in, buffer, &tensor)) return false;
    } else if (!WireFormatLite::SkipField(in, tag)) {
      return false;
    }
  }
  if (!in->ConsumedEntireMessage() || in->BytesUntilLimit() != 0) return false;
  in->PopLimit(limit);
  // Of entries with the same key, the last one wins.
  request->inputs[std::move(alias)] = std::move(tensor);
  return true;
}

bool read(CodedInputStream* in, grpc::ByteBuffer* buffer, PredictRequest* request) {
  for (uint32_t tag; (tag = in->ReadTag()) != 0;) {
    if (tag == delimited(kSpec)) {
      uint32_t bytes;
      if (!request->spec.has_value()) request->spec.emplace();
      if (!in->ReadVarint32(&bytes)) return false;
      const auto limit = in->PushLimit(static_cast<int>(bytes));
      if (!request->spec->MergeFromCodedStream(in) || in->BytesUntilLimit() != 0) return false;
      in->PopLimit(limit);
    } else if (tag == delimited(kInputs)) {
      if (!read_input(in, buffer, request)) return false;
    } else if (tag == delimited(kFilter)) {
      if (!read_string(in, &request->output_filter.emplace_back())) return false;
    } else if (!WireFormatLite::SkipField(in, tag)) {
      return false;
    }
  }
  return in->ConsumedEntireMessage();
}

size_t delimited_size(size_t bytes) {
  return 1 + CodedOutputStream::VarintSize64(bytes) + bytes;  // fields below 16 have a tag of 1
}

uint8_t* write_string(int field, const std::string& value, uint8_t* to) {
  to = write_head(field, value.size(), to);
  return CodedOutputStream::WriteStringToArray(value, to);
}

// A message that has a map of tensors, and a spec behind it. Fails with INVALID_ARGUMENT for a type
// that has no wire form.
grpc::ByteBuffer write_tensors(int map, const std::vector<NamedOutput>& tensors, bool as_content,
                               int spec_field, const std::string& spec) {
  std::vector<TensorWriter> writers;
  writers.reserve(tensors.size());
  size_t bytes = delimited_size(spec.size());
  for (const NamedOutput& named : tensors) {
    writers.emplace_back(named.tensor, as_content);
    if (!writers.back().has_wire_form()) {
      const auto type = static_cast<tensorflow::DataType>(TF_TensorType(named.tensor));
      refuse("output " + *named.alias + ": data type " + tensorflow::DataType_Name(type) +
             " has no wire form");
    }
    bytes += delimited_size(delimited_size(named.alias->size()) +
                            delimited_size(writers.back().bytes()));
  }
  grpc::Slice slice(bytes);
  auto* to = const_cast<uint8_t*>(slice.begin());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& alias = *tensors[i].alias;
    const size_t size = writers[i].bytes();
    to = write_head(map, delimited_size(alias.size()) + delimited_size(size), to);
    to = write_string(kKey, alias, to);
    to = write_head(kValue, size, to);
    to = writers[i].write(to);
  }
  write_string(spec_field, spec, to);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

PredictRequest read_predict_request(grpc::ByteBuffer* buffer) {
  PredictRequest request;
  grpc::ProtoBufferReader reader(buffer);
  CodedInputStream in(&reader);
  if (!reader.status().ok() || !read(&in, buffer, &request)) refuse_unparsed();
  return request;
}

grpc::ByteBuffer write_predict_request(const PredictRequest& request) {
  std::vector<NamedOutput> inputs;
  for (const auto& [alias, tensor] : request.inputs) inputs.push_back({&alias, tensor.get()});
  return write_tensors(kInputs, inputs, false, kSpec, request.spec->SerializeAsString());
}

grpc::ByteBuffer write_predict_response(const std::vector<NamedOutput>& outputs, bool as_content,
                                        const std::string& spec) {
  return write_tensors(kOutputs, outputs, as_content, kUsedSpec, spec);
}

}  // namespace hotrow_server
