// What no server can be cheaper than: TF_SessionRun in the caller's thread, with its tensors there.
//
//     session_floor SAVED_MODEL INPUT OUTPUT ROWS COLUMNS SECONDS
//     session_floor SAVED_MODEL INPUT OUTPUT ROWS COLUMNS THREADS RUNS_PER_SECOND RECORDS_FILE
//
// INPUT, OUTPUT: operations of the graph. The first form prints runs and CPU microseconds a run, as
// JSON; the second runs at a steady rate (pacing.h).
#include <tensorflow/c/c_api.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "pacing.h"

namespace {

double now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void check(TF_Status* status) {
  if (TF_GetCode(status) == TF_OK) return;
  std::fprintf(stderr, "session_floor: %s\n", TF_Message(status));
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 && argc != 9) {
    std::fprintf(stderr,
                 "usage: session_floor SAVED_MODEL INPUT OUTPUT ROWS COLUMNS (SECONDS | THREADS "
                 "RUNS_PER_SECOND RECORDS)\n");
    return 2;
  }
  TF_Status* const status = TF_NewStatus();
  TF_Graph* const graph = TF_NewGraph();
  const char* tag = "serve";
  TF_Session* const session = TF_LoadSessionFromSavedModel(TF_NewSessionOptions(), nullptr, argv[1],
                                                           &tag, 1, graph, nullptr, status);
  check(status);
  const int64_t shape[] = {std::atoll(argv[4]), std::atoll(argv[5])};
  const size_t bytes = static_cast<size_t>(shape[0] * shape[1]) * sizeof(float);
  const TF_Output feed = {TF_GraphOperationByName(graph, argv[2]), 0};
  // serialized RunOptions{inter_op_thread_pool: -1}
  uint8_t in_this_thread[] = {3 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1};
  const TF_Buffer options = {in_this_thread, sizeof(in_this_thread), nullptr};
  const TF_Output fetch = {TF_GraphOperationByName(graph, argv[3]), 0};
  const std::vector<float> values(bytes / sizeof(float), 0.5f);
  const auto run = [&] {
    TF_Status* const status = TF_NewStatus();
    TF_Tensor* const input = TF_AllocateTensor(TF_FLOAT, shape, 2, bytes);
    std::memcpy(TF_TensorData(input), values.data(), bytes);
    TF_Tensor* output = nullptr;
    TF_SessionRun(session, &options, &feed, &input, 1, &fetch, &output, 1, nullptr, 0, nullptr,
                  status);
    check(status);
    TF_DeleteStatus(status);
    TF_DeleteTensor(input);
    TF_DeleteTensor(output);
  };
  for (int i = 0; i < 200; ++i) run();
  if (argc == 9) {
    return run_paced(std::atoi(argv[6]), std::atof(argv[7]), argv[8],
                     [&run](int) -> std::function<int64_t()> {
                       return [&run]() -> int64_t {
                         run();
                         return 0;
                       };
                     });
  }
  const double end = now(CLOCK_MONOTONIC) + std::atof(argv[6]);
  const double started = now(CLOCK_PROCESS_CPUTIME_ID);
  long runs = 0;
  for (; now(CLOCK_MONOTONIC) < end; ++runs) run();
  const double taken = now(CLOCK_PROCESS_CPUTIME_ID) - started;
  std::printf("{\"requests\": %ld, \"cpu_us\": %.2f}\n", runs, 1e6 * taken / runs);
  return 0;
}
