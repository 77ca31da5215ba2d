// Work at a steady rate, whatever it takes: each thread does it at its own fixed times. A latency
// counts from the time at which the work was due, so that a slow piece does not hide those behind
// it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

using PacingClock = std::chrono::system_clock;

// result: of the work; -1 for a failure.
struct PacedRecord {
  int64_t due, sent, nanos, result;
};

inline int64_t nanos_of(PacingClock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// make(i): the work of thread i. Prints "started". Goes on until the standard input ends, then
// writes a record of 4 int64 for each piece: the time at which it was due and that at which it
// began (nanoseconds since 1970), the nanoseconds from due to its end, and its result. Returns the
// program's exit code.
inline int run_paced(int threads, double per_second, const char* records_path,
                     const std::function<std::function<int64_t()>(int)>& make) {
  const auto period = std::chrono::nanoseconds(
      static_cast<int64_t>(1e9 * static_cast<double>(threads) / per_second));
  std::atomic<bool> ending{false};
  std::vector<std::vector<PacedRecord>> records(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  const PacingClock::time_point start = PacingClock::now() + std::chrono::milliseconds(100);
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      const std::function<int64_t()> work = make(i);
      for (auto due = start + i * period / threads; !ending.load(); due += period) {
        std::this_thread::sleep_until(due);
        const auto sent = PacingClock::now();
        const int64_t result = work();
        records[static_cast<size_t>(i)].push_back(
            {nanos_of(due), nanos_of(sent), nanos_of(PacingClock::now()) - nanos_of(due), result});
      }
    });
  }
  std::puts("started");
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
  ending = true;
  for (std::thread& thread : running) thread.join();
  std::ofstream out(records_path, std::ios::binary);
  for (const auto& own : records) {
    out.write(reinterpret_cast<const char*>(own.data()),
              static_cast<std::streamsize>(own.size() * sizeof(PacedRecord)));
  }
  return out ? 0 : 1;
}
