// The lookup stage of online_lookup.py, which builds and calls it: lookups through the C ABI of the
// core, as the server's op makes them, with rows in Redis behind the cache of hot rows.
//
//     online_lookup RECORD TOPOLOGY ROWS_OF_TABLE WIDTH SHARES BATCHES THREADS SECONDS REDIS_PID
//
// RECORD, TOPOLOGY: files. SHARES: of all rows, in per cent, with commas. THREADS: at most. Prints
// lines of metrics: `rates what share batch threads Mrows/s p50 p99 hit-rate fetched own-cpu
// redis-cpu` (microseconds of a lookup; rows fetched and CPU microseconds a lookup) and `oracle
// share rate slots`.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/abi/redis.h"
#include "core/abi/serving.h"
#include "zipf_keys.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kTables = 26;
constexpr size_t kWarmSamples = size_t{1} << 15;  // a round and thread
constexpr int kWarmRounds = 12;
constexpr size_t kHitSamples = size_t{1} << 16;
constexpr double kTimeoutSeconds = 10;

size_t width;
std::string redis_pid;

using Keys = std::vector<std::vector<int64_t>>;  // (T, N) of a thread

void check(int result) {
  if (result == 0) return;
  std::fprintf(stderr, "online_lookup: %s\n", hr_last_error());
  std::exit(1);
}

std::string text_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<double> numbers_of(const char* list) {
  std::vector<double> numbers;
  std::stringstream text(list);
  for (std::string number; std::getline(text, number, ',');) numbers.push_back(std::stod(number));
  return numbers;
}

double own_cpu_micros() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return 1e6 * static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

double redis_cpu_micros() {
  std::ifstream file("/proc/" + redis_pid + "/stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::stringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return 1e6 * (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void in_threads(size_t threads, const std::function<void(size_t)>& work) {
  std::vector<std::thread> running;
  for (size_t t = 0; t < threads; ++t) running.emplace_back([&work, t] { work(t); });
  for (std::thread& thread : running) thread.join();
}

// One set of keys a thread, none the same as before.
std::vector<Keys> draw(const Zipf& zipf, size_t threads, size_t samples) {
  static unsigned seed = 0;
  const unsigned first = seed;
  seed += static_cast<unsigned>(threads);
  std::vector<Keys> keys(threads, Keys(kTables, std::vector<int64_t>(samples)));
  in_threads(threads, [&](size_t t) {
    std::mt19937_64 random(first + t);
    for (auto& column : keys[t]) {
      for (int64_t& key : column) key = key_of(zipf(random));
    }
  });
  return keys;
}

struct Measured {
  std::vector<double> micros;  // of lookups
  double seconds = 0, keys = 0, hits = 0, fetched = 0, own_cpu = 0, redis_cpu = 0;
  double hit_rate() const { return hits / keys; }
};

// Looks all keys up, `batch` samples at a time, each thread its own.
void run(const hr_lookup* lookup, const std::vector<Keys>& keys, size_t batch, int turns,
         Measured* all) {
  std::vector<Measured> own(keys.size());
  std::atomic<size_t> ready{0};
  const double own_cpu = own_cpu_micros(), redis_cpu = redis_cpu_micros();
  in_threads(keys.size(), [&](size_t thread) {
    std::vector<std::vector<float>> rows(kTables, std::vector<float>(batch * width));
    std::vector<hr_feature> features(kTables);
    std::vector<float*> outputs;
    for (size_t t = 0; t < kTables; ++t) {
      features[t] = hr_feature{"f", nullptr, batch, nullptr, batch, nullptr, 0, t};
      outputs.push_back(rows[t].data());
    }
    Measured& mine = own[thread];
    const size_t samples = keys[thread][0].size();
    mine.micros.reserve(static_cast<size_t>(turns) * (samples / batch));
    ++ready;
    while (ready < keys.size()) std::this_thread::yield();
    const auto begin = Clock::now();
    auto asked = begin;
    for (int turn = 0; turn < turns; ++turn) {
      for (size_t at = 0; at + batch <= samples; at += batch) {
        for (size_t t = 0; t < kTables; ++t) features[t].keys = keys[thread][t].data() + at;
        hr_lookup_report report;
        check(hr_lookup_run(lookup, features.data(), kTables, outputs.data(), kTimeoutSeconds,
                            nullptr, &report));
        const auto answered = Clock::now();
        mine.micros.push_back(std::chrono::duration<double, std::micro>(answered - asked).count());
        asked = answered;
        mine.keys += static_cast<double>(report.keys);
        mine.hits += static_cast<double>(report.hits);
        mine.fetched += static_cast<double>(report.fetched);
        if (report.unknown != 0) {
          std::fprintf(stderr, "online_lookup: Redis does not have all rows\n");
          std::exit(1);
        }
      }
    }
    mine.seconds = std::chrono::duration<double>(asked - begin).count();
  });
  double longest = 0;
  for (const Measured& mine : own) {
    all->micros.insert(all->micros.end(), mine.micros.begin(), mine.micros.end());
    all->keys += mine.keys;
    all->hits += mine.hits;
    all->fetched += mine.fetched;
    longest = std::max(longest, mine.seconds);
  }
  all->seconds += longest;
  all->own_cpu += own_cpu_micros() - own_cpu;
  all->redis_cpu += redis_cpu_micros() - redis_cpu;
}

void print(const char* what, double share, size_t batch, size_t threads, Measured m) {
  const double lookups = static_cast<double>(m.micros.size());
  std::sort(m.micros.begin(), m.micros.end());
  std::printf("rates %s %.3f %zu %zu %.3f %.1f %.1f %.4f %.1f %.1f %.1f\n", what, share, batch,
              threads, 1e-6 * m.keys / m.seconds, m.micros[m.micros.size() / 2],
              m.micros[m.micros.size() * 99 / 100], m.hit_rate(), m.fetched / lookups,
              m.own_cpu / lookups, m.redis_cpu / lookups);
  std::fflush(stdout);
}

// What is cached, as often as it is asked for: the keys of each table, repeated to one length.
std::vector<Keys> only_hits(const hr_reader* reader, hr_hot_rows* cache,
                            const std::vector<Keys>& keys) {
  // Misses cost nothing and change nothing where there are no rows behind the cache.
  std::vector<hr_stored_table> tables(kTables);
  for (size_t t = 0; t < kTables; ++t) hr_reader_table(reader, t, &tables[t]);
  hr_reader* nothing;
  hr_lookup* probe;
  check(hr_memory_reader_create(tables.data(), kTables, &nothing));
  check(hr_lookup_create(nothing, cache, 0, 0, &probe));
  std::vector<Keys> hits(keys.size(), Keys(kTables));
  in_threads(keys.size(), [&](size_t thread) {
    std::vector<float> row(width);
    float* const out = row.data();
    for (size_t t = 0; t < kTables; ++t) {
      std::vector<int64_t>& found = hits[thread][t];
      for (const int64_t key : keys[thread][t]) {
        const hr_feature feature{"f", &key, 1, nullptr, 1, nullptr, 0, t};
        hr_lookup_report report;
        check(hr_lookup_run(probe, &feature, 1, &out, kTimeoutSeconds, nullptr, &report));
        if (report.hits == 1) found.push_back(key);
      }
      const size_t distinct = found.size();
      for (size_t i = 0; found.size() < keys[thread][t].size(); ++i) {
        found.push_back(found[i % distinct]);
      }
    }
  });
  hr_lookup_release(probe);
  hr_reader_close(nothing);
  return hits;
}

}  // namespace

int main(int count, char** values) {
  if (count != 10) return 2;
  const size_t rows = std::strtoull(values[3], nullptr, 10);
  width = std::strtoull(values[4], nullptr, 10);
  const size_t most_threads = std::strtoull(values[7], nullptr, 10);
  const double seconds = std::strtod(values[8], nullptr);
  redis_pid = values[9];
  const std::string record = text_of(values[1]), topology = text_of(values[2]);
  const hr_redis_access access{"", "", 0, 0.5, 5.0, 32};
  hr_reader* reader;
  check(hr_redis_reader_open(record.c_str(), topology.c_str(), &access, &reader));
  const Zipf zipf(rows);
  for (const double percent : numbers_of(values[5])) {
    const double share = percent / 100;
    hr_hot_rows* cache;
    hr_lookup* lookup;
    const auto wanted = static_cast<uint64_t>(share * static_cast<double>(rows * kTables));
    check(hr_hot_rows_create(reader, wanted, 0, 0, &cache));
    check(hr_lookup_create(reader, cache, 0, 1, &lookup));
    size_t slots = 0, bytes = 0;
    hr_hot_rows_size(cache, &slots, &bytes);
    std::printf("oracle %.3f %.4f %zu\n", share, zipf.share(slots / kTables), slots);
    for (int round = 0; round < kWarmRounds; ++round) {
      Measured warm;
      run(lookup, draw(zipf, most_threads, kWarmSamples), 512, 1, &warm);
    }
    for (const double number : numbers_of(values[6])) {
      const auto batch = static_cast<size_t>(number);
      // Keys are drawn anew, outside of the time, for about a tenth of a second each.
      const size_t samples = std::max<size_t>(4096, batch * (batch < 1000 ? 64 : 16));
      for (size_t threads = 1; threads <= most_threads; ++threads) {
        Measured mix;
        while (mix.seconds < seconds) run(lookup, draw(zipf, threads, samples), batch, 1, &mix);
        print("mix", share, batch, threads, std::move(mix));
      }
    }
    const std::vector<Keys> hot = only_hits(reader, cache, draw(zipf, most_threads, kHitSamples));
    for (const double number : numbers_of(values[6])) {
      const auto batch = static_cast<size_t>(number);
      for (size_t threads = 1; threads <= most_threads; ++threads) {
        const std::vector<Keys> own(hot.begin(),
                                    hot.begin() + static_cast<std::ptrdiff_t>(threads));
        // The best of several runs of a tenth of a second: others may use the machine.
        Measured best;
        double spent = 0;
        while (spent < seconds) {
          Measured hit;
          run(lookup, own, batch, 1, &hit);
          spent += hit.seconds;
          if (best.seconds == 0 || hit.keys / hit.seconds > best.keys / best.seconds) {
            best = std::move(hit);
          }
        }
        print("hit", share, batch, threads, std::move(best));
      }
    }
    hr_lookup_release(lookup);
    hr_hot_rows_release(cache);
  }
  hr_reader_close(reader);
  return 0;
}
