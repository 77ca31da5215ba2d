// Clients in a closed loop: each has a connection of its own, sends the same serialized request
// again and again, and waits for the answer.
//
//     serving_load ADDRESS REQUEST_FILE CLIENTS WARM_SECONDS SECONDS [METHOD]
//
// METHOD is gRPC's path of it; TF Serving's Predict unless given.
// Prints what was counted after the warm seconds, as JSON: requests, failures, and the latencies
// in microseconds.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "predict_client.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Counted {
  std::vector<double> micros;
  size_t failures = 0;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Counted run(const std::string& address, const std::string& request, const std::string& method,
            int number, double warm, double seconds) {
  PredictClient client(address, number, request, method);
  Counted counted;
  const Clock::time_point start = Clock::now();
  while (seconds_since(start) < warm + seconds) {
    const bool counts = seconds_since(start) >= warm;
    const Clock::time_point sent = Clock::now();
    grpc::ByteBuffer reply;
    const bool answered = client.ask(&reply).ok();
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
  if (argc != 6 && argc != 7) {
    std::fprintf(
        stderr, "usage: serving_load ADDRESS REQUEST_FILE CLIENTS WARM_SECONDS SECONDS [METHOD]\n");
    return 2;
  }
  const std::string request = read_request(argv[2]);
  const std::string method = argc == 7 ? argv[6] : kPredict;
  const int clients = std::atoi(argv[3]);
  const double warm = std::atof(argv[4]), seconds = std::atof(argv[5]);
  std::vector<Counted> counted(static_cast<size_t>(clients));
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      counted[static_cast<size_t>(i)] = run(argv[1], request, method, i, warm, seconds);
    });
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
