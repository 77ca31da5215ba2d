#include "core/abi/serving.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "core/abi/guard.h"
#include "core/serving/device_lookup.h"
#include "core/serving/device_rows.h"
#include "core/serving/hot_rows.h"
#include "core/serving/lookup.h"
#include "core/store/memory_reader.h"
#include "core/store/stored_reader.h"

using hotrow::Code;
using hotrow::fail;
using hotrow::capi::guarded;

struct hr_hot_rows {
  std::shared_ptr<hotrow::HotRows> cache;
};
struct hr_gpu_rows {
  std::unique_ptr<hotrow::DeviceRows> rows;
};
struct hr_lookup {
  hotrow::ServingLookup lookup;
};

namespace {

// Longer than any caller waits; clocks overflow soon after.
constexpr double kLongestSeconds = 1e9;

hotrow::Deadline deadline_after(double seconds) {
  if (!(seconds < kLongestSeconds)) return hotrow::Deadline::max();
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<hotrow::Deadline::duration>(
             std::chrono::duration<double>(std::max(seconds, 0.0)));
}

std::vector<hotrow::ServingFeature> serving_features(const hr_feature* features, size_t count) {
  const std::vector<hotrow::Feature> given = hotrow::capi::to_features(features, count);
  std::vector<hotrow::ServingFeature> asked(count);
  for (size_t f = 0; f < count; ++f) {
    asked[f] = {given[f].name, features[f].table, given[f].keys, given[f].segments};
  }
  return asked;
}

void write_report(const hotrow::LookupReport& met, hr_lookup_report* report) {
  *report = {met.keys,    met.hits,   met.fetched,
             met.unknown, met.failed, static_cast<int>(met.failure.code)};
  if (met.failure.code != Code::kOk) hotrow::capi::last_error() = met.failure.message;
}

hotrow::CachePolicy policy_of(int policy) {
  if (policy != 0 && policy != 1) {
    fail(Code::kInvalidArgument, "policy %d of a cache; 0 (LFU) or 1 (LRU)", policy);
  }
  return static_cast<hotrow::CachePolicy>(policy);
}

const std::byte* bytes_of(const uint8_t* rows) { return reinterpret_cast<const std::byte*>(rows); }

}  // namespace

int hr_memory_reader_create(const hr_stored_table* tables, size_t count, hr_reader** reader) {
  return guarded([&] {
    std::vector<hotrow::StoredTable> all(count);
    for (size_t t = 0; t < count; ++t) {
      all[t].name = tables[t].name;
      all[t].width = tables[t].width;
      all[t].type = hotrow::stored_type_of(tables[t].row_type);
      all[t].default_value = tables[t].default_value;
      all[t].rows = tables[t].rows;
    }
    *reader = new hr_reader{std::make_shared<hotrow::MemoryReader>(std::move(all))};
  });
}

int hr_memory_reader_put(hr_reader* reader, size_t table, const int64_t* keys, size_t count,
                         const uint8_t* rows, const uint64_t* versions) {
  return guarded([&] {
    const auto memory = std::dynamic_pointer_cast<const hotrow::MemoryReader>(reader->reader);
    if (memory == nullptr) fail(Code::kInternal, "not a reader of rows in memory");
    std::const_pointer_cast<hotrow::MemoryReader>(memory)->put(table, keys, count, bytes_of(rows),
                                                               versions);
  });
}

int hr_hot_rows_create(const hr_reader* reader, uint64_t rows, uint64_t bytes, int policy,
                       hr_hot_rows** cache) {
  return guarded([&] {
    hotrow::HotRowsOptions options;
    options.rows = rows;
    options.bytes = bytes;
    options.policy = policy_of(policy);
    *cache = new hr_hot_rows{std::make_shared<hotrow::HotRows>(reader->reader->tables(), options)};
  });
}

void hr_hot_rows_release(hr_hot_rows* cache) { delete cache; }

int hr_hot_rows_update(hr_hot_rows* cache, size_t table, const int64_t* keys, size_t count,
                       const uint8_t* rows, const uint64_t* versions) {
  return guarded([&] { cache->cache->update(table, keys, count, bytes_of(rows), versions); });
}

int hr_hot_rows_invalidate_shard(hr_hot_rows* cache, size_t shard, size_t shards) {
  return guarded([&] { cache->cache->invalidate_shard(shard, shards); });
}

int hr_hot_rows_clear(hr_hot_rows* cache) {
  return guarded([&] { cache->cache->clear(); });
}

void hr_hot_rows_size(const hr_hot_rows* cache, size_t* slots, size_t* bytes) {
  *slots = cache->cache->slots();
  *bytes = cache->cache->bytes();
}

int hr_hot_rows_count(const hr_hot_rows* cache, size_t table, hr_hot_counts* counts) {
  return guarded([&] {
    const hotrow::HotCounts c = cache->cache->counts(table);
    *counts = {c.hits, c.misses, c.inserted, c.evicted, c.refused, c.updated, c.removed, c.rows()};
  });
}

int hr_gpu_rows_create(const hr_hot_rows* below, int gpu, uint64_t bytes, int policy,
                       hr_gpu_rows** rows) {
  return guarded([&] {
    hotrow::DeviceRowsOptions options;
    options.gpu = gpu;
    options.bytes = bytes;
    options.policy = policy_of(policy);
    *rows = new hr_gpu_rows{hotrow::make_device_rows(below->cache, options)};
  });
}

void hr_gpu_rows_release(hr_gpu_rows* rows) { delete rows; }

int hr_gpu_rows_fill(hr_gpu_rows* rows, size_t table, const int64_t* keys, size_t count) {
  return guarded([&] { rows->rows->fill(table, keys, count); });
}

int hr_gpu_rows_size(const hr_gpu_rows* rows, uint64_t* size) {
  return guarded([&] { *size = rows->rows->counts().rows(); });
}

int hr_lookup_create(const hr_reader* reader, hr_hot_rows* cache, int on_store_failure,
                     int share_fetches, hr_lookup** lookup) {
  return guarded([&] {
    if (on_store_failure != 0 && on_store_failure != 1) {
      fail(Code::kInvalidArgument, "on_store_failure %d; 0 (fail) or 1 (default)",
           on_store_failure);
    }
    hotrow::ServingLookupOptions options;
    options.on_store_failure = static_cast<hotrow::OnStoreFailure>(on_store_failure);
    options.share_fetches = share_fetches != 0;
    *lookup = new hr_lookup{{reader->reader, cache == nullptr ? nullptr : cache->cache, options}};
  });
}

void hr_lookup_release(hr_lookup* lookup) { delete lookup; }

int hr_lookup_run(const hr_lookup* lookup, const hr_feature* features, size_t count,
                  float* const* pooled, double timeout_seconds, const hr_executor* executor,
                  hr_lookup_report* report) {
  return guarded([&] {
    const std::vector<hotrow::ServingFeature> asked = serving_features(features, count);
    write_report(lookup->lookup.lookup(asked.data(), count, pooled, deadline_after(timeout_seconds),
                                       hotrow::Executor(executor)),
                 report);
  });
}

int hr_lookup_run_on_gpu(const hr_lookup* lookup, hr_gpu_rows* rows, const hr_stream* on,
                         const hr_feature* features, size_t count, float* const* pooled,
                         double timeout_seconds, const hr_executor* executor,
                         hr_lookup_report* report) {
  return guarded([&] {
    const std::vector<hotrow::ServingFeature> asked = serving_features(features, count);
    const hotrow::Overlay overlay;
    const hotrow::Executor threads(executor);
    hotrow::LookupReport met;
    auto rest = hotrow::begin_on_device(lookup->lookup, *rows->rows, on->stream, asked.data(),
                                        count, pooled, threads, {}, overlay, &met);
    if (rest != nullptr) met = rest->finish(deadline_after(timeout_seconds), threads);
    write_report(met, report);
  });
}

int hr_lookup_count(const hr_lookup* lookup, size_t table, hr_lookup_counts* counts) {
  return guarded([&] {
    const hotrow::LookupCounts c = lookup->lookup.counts(table);
    *counts = {c.fetched, c.unknown, c.failed, c.defaulted};
  });
}

uint64_t hr_lookup_waited(const hr_lookup* lookup) { return lookup->lookup.waited(); }
