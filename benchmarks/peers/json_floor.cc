// What no server that reads JSON can be cheaper than: simdjson's parse of a body into its tree.
//
//     json_floor BODY_FILE SECONDS
//
// Prints parses and CPU microseconds a parse, as JSON.
#include <simdjson.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>

namespace {

double now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: json_floor BODY_FILE SECONDS\n");
    return 2;
  }
  const simdjson::padded_string body = simdjson::padded_string::load(argv[1]);
  simdjson::dom::parser parser;
  const double end = now(CLOCK_MONOTONIC) + std::atof(argv[2]);
  const double started = now(CLOCK_PROCESS_CPUTIME_ID);
  long parses = 0;
  for (; now(CLOCK_MONOTONIC) < end; ++parses) {
    if (parser.parse(body).error() != simdjson::SUCCESS) return 1;
  }
  const double taken = now(CLOCK_PROCESS_CPUTIME_ID) - started;
  std::printf("{\"requests\": %ld, \"cpu_us\": %.2f}\n", parses, 1e6 * taken / parses);
  return 0;
}
