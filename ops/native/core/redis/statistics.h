// Counters of a RedisReader.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <tuple>

namespace hotrow {

struct RedisStatistics {
  using Counter = std::atomic<uint64_t>;
  Counter reads{0}, keys_found{0}, keys_unknown{0}, keys_failed{0};
  Counter pages{0}, markers{0};  // requested
  Counter trips{0};              // exchanges in which a node answered all commands
  Counter reconnects{0}, moved{0}, asked{0}, retried{0};
  Counter refused{0};                    // reads that would have waited for others for too long
  Counter microseconds{0};               // of all reads
  std::array<Counter, 24> read_times{};  // [i]: of reads that took below 2^i microseconds

  void add_time(uint64_t spent) {
    size_t bucket = 0;
    while (bucket + 1 < read_times.size() && spent >> bucket != 0) ++bucket;
    read_times[bucket].fetch_add(1, std::memory_order_relaxed);
    microseconds.fetch_add(spent, std::memory_order_relaxed);
  }
};

// The times of reads for a histogram: below 32 us, 64 us, ..., 4.2 s, and longer.
struct RedisReadTimes {
  static constexpr size_t kSkipped = 5;  // below 32 us; counted in the first bucket
  static constexpr size_t kBuckets =
      std::tuple_size_v<decltype(RedisStatistics::read_times)> - kSkipped;

  std::array<double, kBuckets - 1> bounds;  // seconds
  std::array<uint64_t, kBuckets> counts{};
  double sum;  // seconds

  explicit RedisReadTimes(const RedisStatistics& statistics)
      : sum(static_cast<double>(statistics.microseconds.load()) * 1e-6) {
    for (size_t i = 0; i < bounds.size(); ++i) {
      bounds[i] = static_cast<double>(uint64_t{1} << (i + kSkipped)) * 1e-6;
    }
    for (size_t i = 0; i < statistics.read_times.size(); ++i) {
      counts[i < kSkipped ? 0 : i - kSkipped] += statistics.read_times[i].load();
    }
  }
};

inline void add(RedisStatistics::Counter* counter, uint64_t count = 1) {
  counter->fetch_add(count, std::memory_order_relaxed);
}

}  // namespace hotrow
