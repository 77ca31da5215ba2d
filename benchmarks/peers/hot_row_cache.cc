// Loops of hot_row_cache.py, which builds and calls it: lookups of a server with its rows in
// memory, with and without the cache of hot rows. T tables of R rows, D weights, N keys.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/serving/lookup.h"
#include "core/store/memory_reader.h"
#include "zipf_keys.h"

namespace {

using namespace hotrow;
using Clock = std::chrono::steady_clock;

constexpr size_t kTables = 26;
constexpr int kRepeats = 12;                        // the best counts
constexpr size_t kPoolOfSamples = size_t{1} << 17;  // a thread, before they repeat

size_t rows_of_table, width;
double seconds;
std::string type_name;

// Keys of one thread: (T, N).
using Keys = std::vector<std::vector<int64_t>>;

Keys draw(const Zipf& zipf, unsigned seed) {
  std::mt19937_64 random(seed);
  Keys keys(kTables, std::vector<int64_t>(kPoolOfSamples));
  for (auto& column : keys) {
    for (int64_t& key : column) key = key_of(zipf(random));
  }
  return keys;
}

// Million keys a second of requests of `batch` samples; each thread has its keys.
double rate(const ServingLookup& lookup, const std::vector<Keys>& keys, size_t batch, double time,
            uint64_t* hits) {
  std::atomic<uint64_t> looked_up{0}, found{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (const Keys& own : keys) {
    threads.emplace_back([&] {
      std::vector<std::vector<float>> rows(kTables, std::vector<float>(batch * width));
      std::vector<ServingFeature> features(kTables);
      std::vector<float*> outputs;
      for (size_t t = 0; t < kTables; ++t) {
        features[t].table = t;
        features[t].segments.keys = features[t].segments.samples = batch;
        outputs.push_back(rows[t].data());
      }
      while (!go.load()) std::this_thread::yield();
      const auto end = Clock::now() + std::chrono::duration<double>(time);
      uint64_t count = 0, hit = 0;
      for (size_t at = 0; Clock::now() < end;) {
        for (size_t few = 0; few < std::max<size_t>(1, 256 / batch); ++few) {
          for (size_t t = 0; t < kTables; ++t) features[t].keys = own[t].data() + at;
          const LookupReport report =
              lookup.lookup(features.data(), kTables, outputs.data(), Deadline::max());
          count += report.keys;
          hit += report.hits;
          at += batch;
          if (at + batch > own[0].size()) at = 0;
        }
      }
      looked_up += count;
      found += hit;
    });
  }
  const auto begin = Clock::now();
  go = true;
  for (std::thread& thread : threads) thread.join();
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  if (hits != nullptr) *hits = 1000000 * found / looked_up;
  return 1e-6 * static_cast<double>(looked_up) / took;
}

// The same by a loop that only copies rows whose places are known.
double plain_gather(const Zipf& zipf, size_t rows, bool ahead) {
  std::vector<float> table(rows * width, 1.0f);
  std::mt19937_64 random(3);
  std::vector<uint32_t> places(1 << 21);
  for (uint32_t& place : places) {
    place = static_cast<uint32_t>(mix64(zipf(random) * kTables + random() % kTables) % rows);
  }
  std::vector<float> out(places.size() * width, 1.0f);
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = Clock::now();
    for (size_t i = 0; i < places.size(); ++i) {
      if (ahead) __builtin_prefetch(&table[places[std::min(i + 16, places.size() - 1)] * width]);
      std::memcpy(&out[i * width], &table[places[i] * width], width * sizeof(float));
    }
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, 1e-6 * static_cast<double>(places.size()) / took);
  }
  return best;
}

// What is cached, as often as it is asked for.
Keys only_hits(HotRows& cache, const Keys& keys) {
  Keys hits(kTables);
  std::vector<float> rows(width * kPoolOfSamples);
  for (size_t t = 0; t < kTables; ++t) {
    HotRows::Probe probe;
    probe.table = t;
    probe.keys = keys[t].data();
    probe.count = keys[t].size();
    probe.rows = rows.data();
    std::vector<HotRows::Miss> misses;
    cache.gather(&probe, 1, &misses);
    std::vector<bool> missed(keys[t].size());
    for (const HotRows::Miss& miss : misses) missed[miss.position] = true;
    for (size_t i = 0; i < keys[t].size(); ++i) {
      if (!missed[i]) hits[t].push_back(keys[t][i]);
    }
    const size_t distinct = hits[t].size();
    for (size_t i = 0; hits[t].size() < keys[t].size(); ++i)
      hits[t].push_back(hits[t][i % distinct]);
  }
  return hits;
}

}  // namespace

// Arguments: rows in all, width, row type, seconds a measurement, largest number of threads, shares
// of the cache in per cent with commas between them, policies (f: LFU, whose rates are measured,
// too; r: LRU). Prints lines of metrics, which hot_row_cache.py reads.
int main(int count, char** values) {
  if (count != 8) return 2;
  const size_t rows = std::strtoull(values[1], nullptr, 10);
  rows_of_table = rows / kTables;
  width = std::strtoull(values[2], nullptr, 10);
  type_name = values[3];
  seconds = std::strtod(values[4], nullptr);
  const size_t most_threads = std::strtoull(values[5], nullptr, 10);
  const StoredType type = stored_type_of(type_name.c_str());
  const Zipf zipf(rows_of_table);

  std::printf("gather %.2f %.2f\n", plain_gather(zipf, rows, false),
              plain_gather(zipf, rows, true));
  std::vector<StoredTable> tables(kTables);
  for (StoredTable& table : tables) {
    table.name = "t";
    table.width = width;
    table.type = type;
    table.rows = rows_of_table;
  }
  const auto reader = std::make_shared<MemoryReader>(tables);
  {
    std::vector<float> weights(width);
    std::vector<std::byte> row(tables[0].row_bytes());
    for (size_t t = 0; t < kTables; ++t) {
      reader->reserve(t, rows_of_table);
      for (size_t r = 0; r < rows_of_table; ++r) {
        const int64_t key = key_of(r);
        for (size_t j = 0; j < width; ++j) weights[j] = static_cast<float>(r % 1000 + j + t);
        encode_row(type, weights.data(), width, row.data());
        reader->put(t, &key, 1, row.data(), nullptr);
      }
    }
  }
  ServingLookupOptions options;
  options.share_fetches = false;
  std::vector<Keys> keys;
  for (unsigned t = 0; t < most_threads; ++t) keys.push_back(draw(zipf, 10 + t));
  const size_t batches[] = {1, 128, 1024};
  const auto rates = [&](const char* what, double share, const ServingLookup& lookup,
                         const std::vector<Keys>& all) {
    for (const size_t batch : batches) {
      for (size_t threads = 1; threads <= most_threads; ++threads) {
        const std::vector<Keys> own(all.begin(),
                                    all.begin() + static_cast<std::ptrdiff_t>(threads));
        const double r = rate(lookup, own, batch, seconds, nullptr);
        std::printf("%s %.3f %zu %zu %.2f\n", what, share, batch, threads, r);
        std::fflush(stdout);
      }
    }
  };
  rates("memory", 1.0, ServingLookup(reader, nullptr, options), keys);
  for (std::string shares = values[6]; !shares.empty();) {
    const size_t comma = shares.find(',');
    const double share = std::strtod(shares.substr(0, comma).c_str(), nullptr) / 100;
    shares = comma == std::string::npos ? "" : shares.substr(comma + 1);
    for (const char policy : std::string(values[7])) {
      HotRowsOptions bounds;
      bounds.rows = static_cast<uint64_t>(share * static_cast<double>(rows));
      bounds.policy = policy == 'r' ? CachePolicy::kLru : CachePolicy::kLfu;
      const auto cache = std::make_shared<HotRows>(tables, bounds);
      const ServingLookup lookup(reader, cache, options);
      const double oracle = zipf.share(cache->slots() / kTables);
      uint64_t hits = 0;
      // Cold, then ever warmer; keys that were not drawn before.
      std::printf("hits %c %.3f %.4f", policy, share, oracle);
      for (unsigned turn = 0; turn < 6; ++turn) {
        const Keys fresh = draw(zipf, 100 + turn);
        uint64_t found = 0, asked = 0;
        std::vector<std::vector<float>> out(kTables, std::vector<float>(512 * width));
        std::vector<float*> outputs;
        for (auto& o : out) outputs.push_back(o.data());
        for (size_t at = 0; at < kPoolOfSamples; at += 512) {
          std::vector<ServingFeature> features(kTables);
          for (size_t t = 0; t < kTables; ++t) {
            features[t].table = t;
            features[t].keys = fresh[t].data() + at;
            features[t].segments.keys = features[t].segments.samples = 512;
          }
          const LookupReport report =
              lookup.lookup(features.data(), kTables, outputs.data(), Deadline::max());
          found += report.hits;
          asked += report.keys;
        }
        std::printf(" %.4f", static_cast<double>(found) / static_cast<double>(asked));
        std::fflush(stdout);
      }
      std::printf("\n");
      if (policy == 'r') continue;
      rates("mix", share, lookup, keys);
      std::vector<Keys> hot;
      for (const Keys& own : keys) hot.push_back(only_hits(*cache, own));
      rate(lookup, hot, 128, 0.1, &hits);
      if (hits < 999900) {
        std::fprintf(stderr, "only %llu of a million keys of the hit path hit\n",
                     static_cast<unsigned long long>(hits));
        return 1;
      }
      rates("hit", share, lookup, hot);
    }
  }
  return 0;
}
