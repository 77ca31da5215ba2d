#include "core/abi/c_api.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>

#include "core/abi/guard.h"
#include "core/base/dispatch.h"
#include "core/base/fingerprint.h"
#include "core/base/status.h"
#include "core/base/unique.h"
#include "core/base/warning.h"
#include "core/table/registry.h"

struct hr_serving {
  hotrow::Served served;
};

struct hr_lookup_rest {
  std::unique_ptr<hotrow::UnfinishedLookup> unfinished;
  hotrow::Deadline deadline;
};

using hotrow::Code;
using hotrow::capi::guarded;

namespace {

std::atomic<hr_may_wait> may_wait_for_store{nullptr};

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();
thread_local int64_t request_end = kNoEnd;

// Until when a lookup may read rows.
hotrow::Deadline read_deadline(const hotrow::ServingTables& tables, const hr_read_budget* budget) {
  // A read of this machine's files is not worth asking for.
  if (budget != nullptr && tables.is_remote()) {
    const int64_t until = budget->until(budget->context, tables.timeout().count());
    if (until == kNoEnd) return hotrow::Deadline::max();
    return hotrow::Deadline(std::chrono::nanoseconds(until));
  }
  if (tables.timeout().count() == 0) return hotrow::Deadline::max();
  return std::chrono::steady_clock::now() + tables.timeout();
}

hotrow::ServingOptions to_options(const hr_serving_options& from) {
  hotrow::ServingOptions options;
  options.store = from.store;
  options.generation = from.generation;
  options.topology = from.topology;
  options.redis.username = from.username;
  options.redis.password = from.password;
  options.redis.database = from.database;
  options.timeout = std::chrono::milliseconds(from.timeout_millis);
  if (from.max_reads != 0) options.redis.most_reads = from.max_reads;
  options.on_store_failure = from.default_on_failure != 0 ? hotrow::OnStoreFailure::kDefault
                                                          : hotrow::OnStoreFailure::kFail;
  options.cache.rows = from.cache_rows;
  options.cache.bytes = from.cache_bytes;
  options.cache.policy =
      from.cache_lru != 0 ? hotrow::CachePolicy::kLru : hotrow::CachePolicy::kLfu;
  if (from.gpu_cache_bytes != 0) {
    options.on_gpu.gpu = from.gpu;
    options.on_gpu.bytes = from.gpu_cache_bytes;
    options.on_gpu.policy = options.cache.policy;
    options.on_gpu.if_faster = from.gpu_if_faster != 0;
  }
  options.warm_up_rows_per_second = from.warm_up_rows_per_second;
  options.shown = from.shown;
  options.fence = from.fence;
  return options;
}

std::vector<hotrow::LayerFile> to_layers(const hr_cut_layer* layers, size_t count) {
  std::vector<hotrow::LayerFile> files;
  for (size_t i = 0; i < count; ++i) files.push_back({layers[i].blocks, layers[i].version});
  return files;
}

}  // namespace

const char* hr_last_error(void) { return hotrow::capi::last_error().c_str(); }

int hr_fingerprint64(const char* prefix, size_t prefix_bytes, const char* data,
                     const int64_t* offsets, size_t count, int64_t* keys) {
  return guarded([&] { hotrow::fingerprint64(prefix, prefix_bytes, data, offsets, count, keys); });
}

int hr_unique(const int64_t* keys, size_t count, int64_t* unique, int32_t* inverse,
              size_t* unique_count) {
  return guarded([&] {
    hotrow::Unique u;
    u.run(keys, count);
    *unique_count = u.size();
    std::copy_n(u.keys(), u.size(), unique);
    std::copy_n(u.inverse(), count, inverse);
  });
}

int hr_group_by_owner(const int64_t* keys, size_t count, int32_t shards, int hashed,
                      int64_t* grouped, int32_t* order, int64_t* counts) {
  return guarded([&] {
    hotrow::Dispatch d;
    d.group(keys, count, shards, hashed != 0);
    std::copy(d.grouped().begin(), d.grouped().end(), grouped);
    std::copy(d.order().begin(), d.order().end(), order);
    std::copy(d.counts().begin(), d.counts().end(), counts);
  });
}

void hr_set_warn(void (*warn)(const char* message)) { hotrow::set_warn(warn); }

int hr_serving_bind(const char* model, int64_t version, const char* manifest_path,
                    const hr_serving_options* options) {
  return guarded(
      [&] { hotrow::bind_serving(model, version, manifest_path, to_options(*options)); });
}

int hr_serving_attach(const char* manifest_path, const hr_serving_options* options) {
  return guarded([&] { hotrow::attach_serving(manifest_path, to_options(*options)); });
}

void hr_serving_detach(const char* manifest_path) { hotrow::detach_serving(manifest_path); }

int hr_serving_set_attached_topology(const char* manifest_path, const char* topology) {
  return guarded([&] {
    const auto tables = hotrow::attached_serving(manifest_path).tables;
    if (tables == nullptr) {
      hotrow::fail(Code::kNotFound, "manifest %s is not attached", manifest_path);
    }
    tables->set_topology(topology);
  });
}

void hr_serving_unbind(const char* model, int64_t version) {
  hotrow::unbind_serving(model, version);
}

int hr_serving_share(const char* model, int64_t version, const char* name) {
  return guarded([&] { hotrow::share_serving(model, version, name); });
}

int hr_serving_show(const char* model, int64_t version, uint64_t shown, const hr_cut_layer* layers,
                    size_t count, uint64_t fence) {
  return guarded(
      [&] { hotrow::show_serving(model, version, shown, to_layers(layers, count), fence); });
}

int hr_serving_show_attached(const char* manifest_path, uint64_t shown, const hr_cut_layer* layers,
                             size_t count, uint64_t fence) {
  return guarded(
      [&] { hotrow::show_attached(manifest_path, shown, to_layers(layers, count), fence); });
}

int hr_serving_merge_layers(const char* model, int64_t version) {
  return guarded([&] { hotrow::merge_layers(model, version); });
}

int hr_serving_forget_cached(const char* model, int64_t version) {
  return guarded([&] { hotrow::bound_serving(model, version).tables->forget_cached(); });
}

int hr_serving_set_stale(const char* model, int64_t version, int stale) {
  return guarded([&] { hotrow::bound_serving(model, version).tables->set_stale(stale != 0); });
}

int hr_serving_open(const char* model, int64_t version, const char* manifest_path,
                    hr_serving** tables) {
  return guarded([&] {
    hotrow::Served found;
    if (model != nullptr) found = hotrow::find_serving(model, version);
    if (found.tables == nullptr) found = hotrow::open_serving(manifest_path);
    *tables = new hr_serving{std::move(found)};
  });
}

void hr_serving_release(hr_serving* tables) { delete tables; }

int hr_serving_check_gpu(int gpu) {
  return guarded([&] { hotrow::check_serving_gpu(gpu); });
}

int hr_serving_gpu(const hr_serving* tables) { return tables->served.tables->gpu(); }

uint64_t hr_serving_id(const hr_serving* tables) { return tables->served.tables->id(); }

int hr_serving_table(const hr_serving* tables, const char* table, size_t width, size_t* number) {
  return guarded([&] {
    *number = tables->served.tables->number_of(table);
    const hotrow::StoredTable& stored = tables->served.tables->tables()[*number];
    if (stored.width != width) {
      hotrow::fail(Code::kFailedPrecondition,
                   "table %s: width %zu in the store; the graph needs %zu", table, stored.width,
                   width);
    }
  });
}

int hr_serving_lookup(const hr_serving* tables, const hr_feature* features, size_t count,
                      float* const* pooled, const hr_executor* executor,
                      const hr_sample_counts* counts, const hr_read_budget* budget,
                      const hr_stream* on, hr_lookup_rest** rest) {
  *rest = nullptr;
  return guarded([&] {
    thread_local std::vector<hotrow::ServingFeature> asked;
    asked.clear();
    for (size_t f = 0; f < count; ++f) {
      const hr_feature& from = features[f];
      asked.push_back({from.name, from.table, from.keys, hotrow::capi::to_segments(from)});
    }
    const hotrow::ServingTables& served = *tables->served.tables;
    auto unfinished = served.begin(asked.data(), count, pooled, hotrow::Executor(executor),
                                   {counts->defaulted, counts->stale, counts->samples},
                                   *tables->served.overlay, on == nullptr ? nullptr : on->stream);
    if (unfinished == nullptr) return;
    const hotrow::Deadline deadline = read_deadline(served, budget);
    if (served.is_remote()) {
      const hr_may_wait may_wait = may_wait_for_store.load(std::memory_order_relaxed);
      const std::chrono::duration<double> typical = served.typical_read();
      if (may_wait == nullptr || may_wait(typical.count()) == 0) {
        *rest = new hr_lookup_rest{std::move(unfinished), deadline};
        return;
      }
    }
    unfinished->finish(deadline, hotrow::Executor(executor));
  });
}

int hr_serving_finish_lookup(hr_lookup_rest* rest, const hr_executor* executor) {
  const std::unique_ptr<hr_lookup_rest> owned(rest);
  return guarded([&] { owned->unfinished->finish(owned->deadline, hotrow::Executor(executor)); });
}

void hr_serving_set_request_end(int64_t until) { request_end = until; }

int64_t hr_serving_request_end(void) { return request_end; }

void hr_serving_set_may_wait(hr_may_wait may_wait) { may_wait_for_store.store(may_wait); }

int hr_serving_set_topology(const char* model, int64_t version, const char* topology) {
  return guarded([&] { hotrow::bound_serving(model, version).tables->set_topology(topology); });
}

int hr_serving_counts(const char* model, int64_t version, hr_visit_count visit, void* context) {
  return guarded([&] {
    const hotrow::Served served = hotrow::bound_serving(model, version);
    served.tables->visit_counts(
        [&](const char* name, const std::string& of, double value, bool gauge) {
          visit(context, name, of.c_str(), value, gauge ? 1 : 0);
        });
    const auto& layers = served.overlay->layers;
    visit(context, "cut_layers", "", static_cast<double>(layers.size()), 1);
    size_t bytes = 0;
    for (const auto& layer : layers) bytes += layer->bytes();
    visit(context, "cut_layer_bytes", "", static_cast<double>(bytes), 1);
  });
}

int hr_serving_histograms(const char* model, int64_t version, hr_visit_histogram visit,
                          void* context) {
  return guarded([&] {
    hotrow::bound_serving(model, version)
        .tables->visit_histograms(
            [&](const char* name, const double* bounds, size_t count, const uint64_t* buckets,
                double sum) { visit(context, name, bounds, count, buckets, sum); });
  });
}
