#define HOTROW_CORE_BUILD
#include "core/c_api.h"

#include <cstring>
#include <new>
#include <string>

#include "core/c_api_guard.h"
#include "core/dispatch.h"
#include "core/fingerprint.h"
#include "core/lmdb_store.h"
#include "core/lookup.h"
#include "core/registry.h"
#include "core/status.h"
#include "core/unique.h"

struct hr_serving {
  std::shared_ptr<const hotrow::ServingTables> tables;
};
struct hr_store_writer {
  hotrow::LmdbWriter writer;
};
struct hr_store_reader {
  hotrow::LmdbReader reader;
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
    const hotrow::RowSource& source = tables->tables->table(table);
    if (source.width() != width) {
      hotrow::fail(Code::kFailedPrecondition,
                   "table %s: width %zu in the store; the graph needs %zu", table, source.width(),
                   width);
    }
    const size_t missing = hotrow::lookup(source, to_features(features, count),
                                          std::vector<float*>(pooled, pooled + count));
    if (unknown != nullptr) *unknown = missing;
  });
}

int hr_store_writer_open(const char* directory, const char* generation, const char* table,
                         size_t width, hr_store_writer** writer) {
  return guarded([&] { *writer = new hr_store_writer{{directory, generation, table, width}}; });
}

int hr_store_writer_put(hr_store_writer* writer, const int64_t* keys, size_t count,
                        const float* rows) {
  return guarded([&] { writer->writer.put(keys, count, rows); });
}

void hr_store_writer_close(hr_store_writer* writer) { delete writer; }

int hr_store_reader_open(const char* directory, const char* generation, const char* table,
                         size_t width, float default_value, hr_store_reader** reader) {
  return guarded(
      [&] { *reader = new hr_store_reader{{directory, generation, table, width, default_value}}; });
}

int hr_store_reader_size(const hr_store_reader* reader, size_t* size) {
  return guarded([&] { *size = reader->reader.size(); });
}

int hr_store_reader_read(const hr_store_reader* reader, const int64_t* keys, size_t count,
                         float* rows, size_t* unknown) {
  return guarded([&] {
    const size_t missing = hotrow::lookup(reader->reader, one_feature(keys, count), {rows});
    if (unknown != nullptr) *unknown = missing;
  });
}

int hr_store_reader_scan(const hr_store_reader* reader, int from_start, int64_t after, size_t count,
                         int64_t* keys, float* rows, size_t* written) {
  return guarded(
      [&] { *written = reader->reader.scan(from_start != 0, after, count, keys, rows); });
}

int hr_store_reader_digest(const hr_store_reader* reader, uint64_t digest[2]) {
  return guarded([&] { reader->reader.digest(digest); });
}

void hr_store_reader_close(hr_store_reader* reader) { delete reader; }

int hr_store_list(const char* directory, hr_store_visit visit, void* context) {
  return guarded([&] {
    for (const auto& entry : hotrow::LmdbEnvironment::open(directory, false)->list()) {
      visit(context, entry.generation.c_str(), entry.table.c_str(), entry.rows);
    }
  });
}
