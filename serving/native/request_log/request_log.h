// Which requests of a model are logged: a sample of those that were answered, each as a
// tensorflow.serving.PredictionLog. Its request and reply are the bytes of the wire.
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

// What answered a request.
struct LoggedAnswer {
  int64_t version;
  std::string signature;                                        // empty: it has none, or several
  const google::protobuf::RepeatedPtrField<std::string>& tags;  // of the graph
};

class RequestLog {
 public:
  // writer: outlives it.
  RequestLog(std::string model, const tensorflow::serving::LoggingConfig& config,
             RecordWriter* writer);

  // Logs a request, if it is one of the sample and its record fits; else that is counted.
  // field: of the PredictionLog, for the method.
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

// Those of the models whose requests are to be logged. Sets the writer's limits.
RequestLogs request_logs(const hotrow::Routes& routes, RecordWriter* writer);

}  // namespace hotrow_server
