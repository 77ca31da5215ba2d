// Clients in a closed loop that send one request after the other from a file, none twice before all
// have been sent.
//
//     rotating_load ADDRESS REQUESTS_FILE CLIENTS REQUESTS
//
// The file: of each serialized PredictRequest its bytes (uint64), then itself. Sends REQUESTS in
// all. Prints JSON: requests, failures (the last one on stderr), microseconds of latencies (p50,
// p99) and of this program's CPU a request, requests a second.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "predict_client.h"

namespace {

using Clock = std::chrono::steady_clock;

double micros_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double cpu_micros() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return 1e6 * static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

std::vector<grpc::ByteBuffer> split(const std::string& file) {
  std::vector<grpc::ByteBuffer> requests;
  for (size_t at = 0; at < file.size();) {
    uint64_t bytes;
    std::memcpy(&bytes, file.data() + at, sizeof(bytes));
    const grpc::Slice slice(file.data() + at + sizeof(bytes), bytes);
    requests.emplace_back(&slice, 1);
    at += sizeof(bytes) + bytes;
  }
  return requests;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: rotating_load ADDRESS REQUESTS_FILE CLIENTS REQUESTS\n");
    return 2;
  }
  const std::vector<grpc::ByteBuffer> requests = split(read_request(argv[2]));
  const int clients = std::atoi(argv[3]);
  const size_t wanted = std::strtoull(argv[4], nullptr, 10);
  std::atomic<size_t> next{0}, failures{0};
  std::mutex mutex;
  std::vector<double> micros;
  std::string failure;
  const double cpu = cpu_micros();
  const Clock::time_point start = Clock::now();
  std::vector<std::thread> threads;
  for (int number = 0; number < clients; ++number) {
    threads.emplace_back([&, number] {
      PredictClient client(argv[1], number, "");
      std::vector<double> own;
      for (size_t i = next++; i < wanted; i = next++) {
        const Clock::time_point sent = Clock::now();
        grpc::ByteBuffer reply;
        const grpc::Status status = client.ask(requests[i % requests.size()], &reply);
        own.push_back(micros_since(sent));
        if (status.ok()) continue;
        ++failures;
        const std::lock_guard lock(mutex);
        failure = status.error_message();
      }
      const std::lock_guard lock(mutex);
      micros.insert(micros.end(), own.begin(), own.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double took = micros_since(start), count = static_cast<double>(micros.size());
  std::sort(micros.begin(), micros.end());
  std::fprintf(stderr, "%s", failure.c_str());
  std::printf(
      "{\"requests\": %zu, \"failures\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, "
      "\"client_cpu_us\": %.1f, \"requests_per_s\": %.1f}\n",
      micros.size(), failures.load(), micros[micros.size() / 2], micros[micros.size() * 99 / 100],
      (cpu_micros() - cpu) / count, 1e6 * count / took);
  return 0;
}
