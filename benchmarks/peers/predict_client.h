// How the load generators call: a client sends the same serialized request again and again and
// waits for each answer. It parses nothing, to take as little of the machine as it can.
#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

inline constexpr char kPredict[] = "/tensorflow.serving.PredictionService/Predict";

// A client with a connection of its own.
class PredictClient {
 public:
  // number: no other client's, so that they do not share a connection.
  PredictClient(const std::string& address, int number, const std::string& request,
                const std::string& method = kPredict)
      : stub_(channel(address, number)), slice_(request), request_(&slice_, 1), method_(method) {}

  // Fills the reply when the call was answered.
  grpc::Status ask(grpc::ByteBuffer* reply) { return ask(request_, reply); }
  // The same with another request.
  grpc::Status ask(const grpc::ByteBuffer& request, grpc::ByteBuffer* reply) {
    grpc::ClientContext context;
    grpc::Status status;
    grpc::CompletionQueue queue;
    const auto reader = stub_.PrepareUnaryCall(&context, method_, request, &queue);
    reader->StartCall();
    reader->Finish(reply, &status, nullptr);
    void* event;
    bool ok;
    queue.Next(&event, &ok);
    return status;
  }

 private:
  static std::shared_ptr<grpc::Channel> channel(const std::string& address, int number) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("client", number);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  grpc::GenericStub stub_;
  const grpc::Slice slice_;
  const grpc::ByteBuffer request_;
  const std::string method_;
};

inline std::string read_request(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
