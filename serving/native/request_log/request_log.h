// Logs a sample of a model's answered requests, each as a tensorflow.serving.PredictionLog. Its
// request and reply are the bytes of the wire.
#pragma once

#include <google/protobuf/repeated_field.h>
#include <grpcpp/support/byte_buffer.h>

#include <map>
#include <memory>
#include <string>

#include "hotrow/protos/control.pb.h"
#include "request_log/record_writer.h"
#include "tensorflow_serving/config/logging_config.pb.h"

namespace hotrow_server {

// The servable and signature that answered a request.
struct LoggedAnswer {
  int64_t version;
  std::string signature;                                        // empty: it has none, or several
  const google::protobuf::RepeatedPtrField<std::string>& tags;  // of the graph
};

class RequestLog {
 public:
  // writer: must outlive it.
  RequestLog(std::string model, const tensorflow::serving::LoggingConfig& config,
             RecordWriter* writer);

  // Logs a request if it is in the sample; counts it as dropped if its record does not fit. field:
  // the PredictionLog's field for the method.
  void add(int field, const LoggedAnswer& answer, const grpc::ByteBuffer& request,
           const grpc::ByteBuffer& reply) const noexcept;

 private:
  bool takes_next() const;
  std::string metadata(const LoggedAnswer& answer) const;

  const std::string model_;
  const tensorflow::serving::SamplingConfig sampling_;
  RecordWriter* const writer_;
  const std::shared_ptr<LogFile> file_;
};

// By model.
using RequestLogs = std::map<std::string, std::shared_ptr<const RequestLog>>;

// The logs of models whose requests are logged. Sets the writer's limits.
RequestLogs request_logs(const hotrow::Routes& routes, RecordWriter* writer);

}  // namespace hotrow_server
