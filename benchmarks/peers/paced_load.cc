// Clients of a Predict service that send at a steady rate, whatever the answers take: each has a
// connection of its own and sends the same serialized PredictRequest at its own fixed times. A
// latency counts from the time at which the request was due, so that a client that waits for a slow
// answer does not hide the requests behind it.
//
//     paced_load ADDRESS REQUEST_FILE CLIENTS REQUESTS_PER_SECOND RECORDS_FILE
//
// Goes on until its standard input ends, then writes a record for each request: 4 int64, the time
// at which it was due and that at which it was sent (nanoseconds since 1970), the nanoseconds from
// due to its answer, and the version that answered; -1 for a failure.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "predict_client.h"

namespace {

using Clock = std::chrono::system_clock;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

struct Record {
  int64_t due, sent, nanos, version;
};

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

// The version that answered; -1: it failed.
int64_t ask(PredictClient* client) {
  grpc::ByteBuffer reply;
  const grpc::Status status = client->ask(&reply);
  if (status.ok()) return version_of(&reply);
  std::fprintf(stderr, "refused: %s\n", status.error_message().c_str());
  return -1;
}

int64_t nanos(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

void run(const std::string& address, const std::string& request, int number,
         Clock::time_point first, std::chrono::nanoseconds period, const std::atomic<bool>* ending,
         std::vector<Record>* records) {
  PredictClient client(address, number, request);
  for (Clock::time_point due = first; !ending->load(); due += period) {
    std::this_thread::sleep_until(due);
    const Clock::time_point sent = Clock::now();
    const int64_t version = ask(&client);
    records->push_back({nanos(due), nanos(sent), nanos(Clock::now()) - nanos(due), version});
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr,
                 "usage: paced_load ADDRESS REQUEST_FILE CLIENTS REQUESTS_PER_SECOND RECORDS\n");
    return 2;
  }
  const std::string request = read_request(argv[2]);
  const int clients = std::atoi(argv[3]);
  const auto period = std::chrono::nanoseconds(
      static_cast<int64_t>(1e9 * static_cast<double>(clients) / std::atof(argv[4])));
  std::atomic<bool> ending{false};
  std::vector<std::vector<Record>> records(static_cast<size_t>(clients));
  std::vector<std::thread> threads;
  const Clock::time_point start = Clock::now() + std::chrono::milliseconds(100);
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back(run, argv[1], request, i, start + i * period / clients, period, &ending,
                         &records[static_cast<size_t>(i)]);
  }
  while (std::getchar() != EOF) continue;
  ending = true;
  for (std::thread& thread : threads) thread.join();
  std::ofstream out(argv[5], std::ios::binary);
  for (const auto& own : records) {
    out.write(reinterpret_cast<const char*>(own.data()),
              static_cast<std::streamsize>(own.size() * sizeof(Record)));
  }
  return out ? 0 : 1;
}
