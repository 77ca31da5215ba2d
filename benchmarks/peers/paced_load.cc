// Clients of a Predict service that send at a steady rate (pacing.h): each has a connection of its
// own and sends the same serialized PredictRequest, or over REST the same body.
//
//     paced_load ADDRESS REQUEST_FILE CLIENTS REQUESTS_PER_SECOND RECORDS_FILE
//
// ADDRESS: HOST:PORT of gRPC, or HOST:PORT/PATH of REST. REQUEST_FILE: over gRPC also a folder of
// them, which each client sends in turn. The result of a request is the version that answered, over
// REST 0.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "pacing.h"
#include "predict_client.h"
#include "rest_client.h"

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint32_t tag(int field, WireFormatLite::WireType type) {
  return WireFormatLite::MakeTag(field, type);
}

// Goes into the message of a field; false: there is none.
bool enter(CodedInputStream* in, int field) {
  for (uint32_t found; (found = in->ReadTag()) != 0;) {
    if (found == tag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) {
      uint32_t bytes;
      if (!in->ReadVarint32(&bytes)) return false;
      in->PushLimit(static_cast<int>(bytes));
      return true;
    }
    if (!WireFormatLite::SkipField(in, found)) return false;
  }
  return false;
}

// PredictResponse.model_spec.version.value; -1: there is none.
int64_t version_of(grpc::ByteBuffer* reply) {
  grpc::ProtoBufferReader reader(reply);
  CodedInputStream in(&reader);
  uint64_t value;
  if (!enter(&in, 2) || !enter(&in, 2)) return -1;
  if (in.ReadTag() != tag(1, WireFormatLite::WIRETYPE_VARINT) || !in.ReadVarint64(&value))
    return -1;
  return static_cast<int64_t>(value);
}

// The requests of a file, or of the files of a folder.
std::vector<grpc::ByteBuffer> read_requests(const std::string& path) {
  std::vector<std::string> files{path};
  if (std::filesystem::is_directory(path)) {
    files.clear();
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
  }
  std::vector<grpc::ByteBuffer> requests;
  for (const std::string& file : files) {
    const grpc::Slice slice(read_request(file.c_str()));
    requests.emplace_back(&slice, 1);
  }
  return requests;
}

// The version that answered; -1: it failed.
int64_t ask(PredictClient* client, const grpc::ByteBuffer& request) {
  grpc::ByteBuffer reply;
  const grpc::Status status = client->ask(request, &reply);
  if (status.ok()) return version_of(&reply);
  std::fprintf(stderr, "refused: %s\n", status.error_message().c_str());
  return -1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr,
                 "usage: paced_load ADDRESS REQUEST_FILE CLIENTS REQUESTS_PER_SECOND RECORDS\n");
    return 2;
  }
  const std::string address = argv[1];
  const int clients = std::atoi(argv[3]);
  const double per_second = std::atof(argv[4]);
  if (address.find('/') != std::string::npos) {
    const std::string body = read_request(argv[2]);
    return run_paced(clients, per_second, argv[5], [&](int) -> std::function<int64_t()> {
      const auto client = std::make_shared<RestClient>(address, body);
      return [client] { return client->ask() ? 0 : -1; };
    });
  }
  const std::vector<grpc::ByteBuffer> requests = read_requests(argv[2]);
  return run_paced(clients, per_second, argv[5], [&](int number) -> std::function<int64_t()> {
    const auto client = std::make_shared<PredictClient>(address, number, "");
    return [client, &requests, next = static_cast<size_t>(number)]() mutable {
      return ask(client.get(), requests[next++ % requests.size()]);
    };
  });
}
