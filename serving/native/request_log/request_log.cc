#include "request_log/request_log.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <chrono>
#include <random>

#include "request_log/metrics.h"
#include "tensorflow_serving/apis/logging.pb.h"
#include "wire/tf_record.h"

namespace hotrow_server {
namespace {

namespace serving = tensorflow::serving;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// Of PredictionLog, and of the log of each method.
constexpr int kMetadata = 1, kRequest = 1, kReply = 2;

size_t field_size(size_t bytes) {
  return 1 + CodedOutputStream::VarintSize64(bytes) + bytes;  // fields below 16 have a tag of 1
}

void append_head(int field, size_t bytes, std::string* to) {
  uint8_t head[16];
  uint8_t* end = CodedOutputStream::WriteTagToArray(
      WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), head);
  end = CodedOutputStream::WriteVarint64ToArray(bytes, end);
  to->append(reinterpret_cast<const char*>(head), static_cast<size_t>(end - head));
}

void append_field(int field, const grpc::ByteBuffer& value, std::string* to) {
  append_head(field, value.Length(), to);
  std::vector<grpc::Slice> slices;
  if (!value.Dump(&slices).ok()) throw std::bad_alloc();
  for (const grpc::Slice& slice : slices) {
    to->append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
}

// Room in the writer's queue.
class Room {
 public:
  Room(RecordWriter* writer, size_t bytes)
      : writer_(writer->reserve(bytes) ? writer : nullptr), bytes_(bytes) {}
  ~Room() {
    if (writer_ != nullptr) writer_->release(bytes_);
  }
  Room(const Room&) = delete;
  bool is_there() const { return writer_ != nullptr; }
  void use(RecordWriter::Record record) {
    writer_->add(std::move(record));
    writer_ = nullptr;
  }

 private:
  RecordWriter* writer_;
  const size_t bytes_;
};

}  // namespace

RequestLog::RequestLog(std::string model, const serving::LoggingConfig& config,
                       RecordWriter* writer)
    : model_(std::move(model)),
      sampling_(config.sampling_config()),
      writer_(writer),
      file_(writer->file(config.log_collector_config().filename_prefix())) {}

void RequestLog::add(int field, const LoggedAnswer& answer, const grpc::ByteBuffer& request,
                     const grpc::ByteBuffer& reply) const noexcept {
  if (!takes_next()) return;
  try {
    const std::string head = metadata(answer);
    const size_t body = field_size(request.Length()) + field_size(reply.Length());
    const size_t bytes = kRecordHead + field_size(head.size()) + field_size(body) + kRecordFoot;
    Room room(writer_, bytes);
    if (room.is_there()) {
      std::string record;
      record.reserve(bytes);
      record.append(kRecordHead, '\0');
      append_head(kMetadata, head.size(), &record);
      record += head;
      append_head(field, body, &record);
      append_field(kRequest, request, &record);
      append_field(kReply, reply, &record);
      record.append(kRecordFoot, '\0');
      room.use({std::move(record), file_, model_});
      return;
    }
  } catch (const std::bad_alloc&) {
    // Counted as a record for which the queue has no room.
  }
  count_dropped(model_, Dropped::kQueueFull, 1);
}

bool RequestLog::takes_next() const {
  const double rate = sampling_.sampling_rate();
  if (rate >= 1) return true;
  // Each thread's own; std::random_device may fail.
  static thread_local std::minstd_rand random(static_cast<uint32_t>(
      std::hash<const void*>()(&random) ^
      static_cast<size_t>(std::chrono::steady_clock::now().time_since_epoch().count())));
  return std::uniform_real_distribution<double>()(random) < rate;
}

std::string RequestLog::metadata(const LoggedAnswer& answer) const {
  serving::LogMetadata metadata;
  serving::ModelSpec* const spec = metadata.mutable_model_spec();
  spec->set_name(model_);
  spec->mutable_version()->set_value(answer.version);
  spec->set_signature_name(answer.signature);
  *metadata.mutable_sampling_config() = sampling_;
  *metadata.mutable_saved_model_tags() = answer.tags;
  metadata.set_timestamp_secs(std::chrono::duration_cast<std::chrono::seconds>(
                                  std::chrono::system_clock::now().time_since_epoch())
                                  .count());
  return metadata.SerializeAsString();
}

RequestLogs request_logs(const hotrow::Routes& routes, RecordWriter* writer) {
  const hotrow::RequestLogLimits& limits = routes.request_logs();
  writer->set_limits({{limits.file_bytes(), limits.file_seconds()}, limits.queue_bytes()});
  RequestLogs logs;
  for (const auto& model : routes.models()) {
    if (!model.has_logging()) continue;
    logs[model.name()] = std::make_shared<const RequestLog>(model.name(), model.logging(), writer);
  }
  return logs;
}

}  // namespace hotrow_server
