// Clients of a Predict service in a closed loop: each has a connection of its own, sends the same
// serialized PredictRequest again and again, and waits for the answer. Messages are not parsed, so
// that the clients take as little of the machine as they can.
//
//     serving_load ADDRESS REQUEST_FILE CLIENTS WARM_SECONDS SECONDS
//
// Prints what was counted after the warm seconds, as JSON: requests, failures, and the latencies
// in microseconds.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Counted {
  std::vector<double> micros;
  size_t failures = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One call; whether it was answered.
bool call(grpc::GenericStub* stub, const grpc::ByteBuffer& request) {
  grpc::ClientContext context;
  grpc::ByteBuffer reply;
  grpc::Status status;
  grpc::CompletionQueue queue;
  const auto reader = stub->PrepareUnaryCall(
      &context, "/tensorflow.serving.PredictionService/Predict", request, &queue);
  reader->StartCall();
  reader->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  return status.ok();
}

Counted run(const std::string& address, const std::string& bytes, int number, double warm,
            double seconds) {
  grpc::ChannelArguments arguments;
  arguments.SetInt("client", number);  // so that channels do not share a connection
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  Counted counted;
  const Clock::time_point start = Clock::now();
  while (seconds_since(start) < warm + seconds) {
    const bool counts = seconds_since(start) >= warm;
    const Clock::time_point sent = Clock::now();
    const bool answered = call(&stub, request);
    if (!counts) continue;
    if (answered) {
      counted.micros.push_back(1e6 * seconds_since(sent));
    } else {
      ++counted.failures;
    }
  }
  return counted;
}

double quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0.0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * sorted.size()))];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: serving_load ADDRESS REQUEST_FILE CLIENTS WARM_SECONDS SECONDS\n");
    return 2;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const int clients = std::atoi(argv[3]);
  const double warm = std::atof(argv[4]), seconds = std::atof(argv[5]);
  std::vector<Counted> counted(static_cast<size_t>(clients));
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back(
        [&, i] { counted[static_cast<size_t>(i)] = run(argv[1], bytes, i, warm, seconds); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> micros;
  size_t failures = 0;
  for (const Counted& one : counted) {
    micros.insert(micros.end(), one.micros.begin(), one.micros.end());
    failures += one.failures;
  }
  std::sort(micros.begin(), micros.end());
  std::printf(
      "{\"requests\": %zu, \"failures\": %zu, \"p50\": %.1f, \"p99\": %.1f, \"most\": %.1f}\n",
      micros.size(), failures, quantile(micros, 0.5), quantile(micros, 0.99),
      quantile(micros, 1.0));
  return 0;
}
