#define HOTROW_CORE_BUILD
#include "core/c_api.h"

#include <cstring>
#include <new>
#include <string>

#include "core/c_api_guard.h"
#include "core/dispatch.h"
#include "core/fingerprint.h"
#include "core/lookup.h"
#include "core/registry.h"
#include "core/status.h"
#include "core/unique.h"

struct hr_serving {
  std::shared_ptr<const hotrow::ServingTables> tables;
};

using hotrow::Code;
using hotrow::capi::guarded;
using hotrow::capi::one_feature;
using hotrow::capi::to_features;

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

int hr_combine(const float* grouped_rows, const int32_t* order, size_t count, size_t width,
               float* rows) {
  return guarded([&] { hotrow::combine(grouped_rows, order, count, width, rows); });
}

int hr_serving_bind(const char* model, int64_t version, const char* manifest_path,
                    const char* store_url) {
  return guarded([&] { hotrow::bind_serving(model, version, manifest_path, store_url); });
}

void hr_serving_unbind(const char* model, int64_t version) {
  hotrow::unbind_serving(model, version);
}

int hr_serving_open(const char* model, int64_t version, const char* manifest_path,
                    hr_serving** tables) {
  return guarded([&] {
    auto found = model == nullptr ? nullptr : hotrow::find_serving(model, version);
    *tables = new hr_serving{found != nullptr ? found : hotrow::open_serving(manifest_path)};
  });
}

void hr_serving_release(hr_serving* tables) { delete tables; }

int hr_serving_lookup(const hr_serving* tables, const char* table, size_t width,
                      const hr_feature* features, size_t count, float* const* pooled,
                      size_t* unknown) {
  return guarded([&] {
    const hotrow::ServingTables& served = *tables->tables;
    const size_t number = served.number_of(table);
    const hotrow::StoredTable& stored = served.reader().tables()[number];
    if (stored.width != width) {
      hotrow::fail(Code::kFailedPrecondition,
                   "table %s: width %zu in the store; the graph needs %zu", table, stored.width,
                   width);
    }
    const size_t missing = hotrow::lookup(served.reader(), number, to_features(features, count),
                                          std::vector<float*>(pooled, pooled + count));
    if (unknown != nullptr) *unknown = missing;
  });
}
