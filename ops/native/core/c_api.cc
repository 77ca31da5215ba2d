#define HOTROW_CORE_BUILD
#include "core/c_api.h"

#include <cstring>
#include <new>
#include <string>

#include "core/fingerprint.h"
#include "core/lmdb_store.h"
#include "core/lookup.h"
#include "core/registry.h"
#include "core/status.h"

static_assert(HR_SLOTS == hotrow::ShardedTable::kSlots);
static_assert(HR_UNIT == hotrow::ShardedTable::kUnit);
static_assert(HR_UNCHANGED == hotrow::ShardedTable::kUnchanged);

struct hr_table {
  std::shared_ptr<hotrow::ShardedTable> table;
};
struct hr_serving {
  std::shared_ptr<const hotrow::ServingTables> tables;
};
struct hr_store_writer {
  hotrow::LmdbWriter writer;
};
struct hr_store_reader {
  hotrow::LmdbReader reader;
};

namespace {

using hotrow::Code;
using hotrow::Feature;

thread_local std::string last_error;

// Runs `body` and turns what it throws into a code and a message.
template <typename Body>
int guarded(Body&& body) {
  try {
    body();
    return 0;
  } catch (const hotrow::Error& error) {
    last_error = error.what();
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";
    return static_cast<int>(Code::kResourceExhausted);
  } catch (const std::exception& error) {
    last_error = error.what();
    return static_cast<int>(Code::kInternal);
  }
}

std::vector<Feature> to_features(const hr_feature* features, size_t count) {
  std::vector<Feature> result(count);
  for (size_t f = 0; f < count; ++f) {
    const hr_feature& from = features[f];
    if (from.combiner < 0 || from.combiner > 3) {
      hotrow::fail(Code::kInvalidArgument, "feature %s: combiner %d; one of 0 to 3", from.name,
                   from.combiner);
    }
    result[f].name = from.name;
    result[f].keys = from.keys;
    result[f].segments =
        hotrow::Segments{static_cast<hotrow::Combiner>(from.combiner), from.key_count, from.samples,
                         from.row_splits, from.weights};
  }
  return result;
}

// The keys of one feature that is not pooled.
std::vector<Feature> one_feature(const int64_t* keys, size_t count) {
  Feature feature;
  feature.keys = keys;
  feature.segments.keys = feature.segments.samples = count;
  return {feature};
}

void check_width(const hotrow::ShardedTable& table, size_t width) {
  if (table.width() != width) {
    hotrow::fail(Code::kFailedPrecondition, "table %s: width %zu; the graph needs %zu",
                 table.name().c_str(), table.width(), width);
  }
}

hotrow::TableOptions to_options(const hr_table_options& from) {
  hotrow::TableOptions options;
  options.width = from.width;
  options.vocabulary_size = from.vocabulary_size;
  options.default_value = from.default_value;
  options.init.kind = static_cast<hotrow::InitKind>(from.init_kind);
  options.init.scale = from.init_scale;
  options.init.seed = from.seed;
  int64_t name_key = 0;
  const int64_t offsets[2] = {0, static_cast<int64_t>(std::strlen(from.name))};
  hotrow::fingerprint64("", 0, from.name, offsets, 1, &name_key);
  options.init.table = static_cast<uint64_t>(name_key);
  options.optimizer.kind = static_cast<hotrow::OptimizerKind>(from.optimizer_kind);
  options.optimizer.learning_rate = from.learning_rate;
  options.optimizer.initial_accumulator = from.initial_accumulator;
  options.optimizer.epsilon = from.epsilon;
  return options;
}

}  // namespace

const char* hr_last_error(void) { return last_error.c_str(); }

int hr_fingerprint64(const char* prefix, size_t prefix_bytes, const char* data,
                     const int64_t* offsets, size_t count, int64_t* keys) {
  return guarded([&] { hotrow::fingerprint64(prefix, prefix_bytes, data, offsets, count, keys); });
}

int hr_unique(const int64_t* keys, size_t count, int64_t* unique, int32_t* inverse,
              size_t* unique_count) {
  return guarded([&] {
    hotrow::Unique u;
    u.run(keys, count);
    *unique_count = u.keys().size();
    std::copy(u.keys().begin(), u.keys().end(), unique);
    std::copy(u.inverse().begin(), u.inverse().end(), inverse);
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

int hr_table_create(const char* handle, const hr_table_options* options, hr_table** table) {
  return guarded([&] {
    *table = new hr_table{hotrow::create_table(handle, options->name, to_options(*options),
                                               options->shards, options->hashed != 0)};
  });
}

int hr_table_open(const char* handle, hr_table** table) {
  return guarded([&] { *table = new hr_table{hotrow::find_table(handle)}; });
}

void hr_table_release(hr_table* table) { delete table; }
void hr_table_drop(const char* handle) { hotrow::drop_table(handle); }
size_t hr_table_width(const hr_table* table) { return table->table->width(); }
size_t hr_table_line_width(const hr_table* table) { return table->table->line_width(); }
size_t hr_table_size(const hr_table* table) { return table->table->size(); }
size_t hr_table_bytes(const hr_table* table) { return table->table->bytes(); }
uint32_t hr_table_step(const hr_table* table) { return table->table->step(); }
void hr_table_set_step(hr_table* table, uint32_t step) { table->table->set_step(step); }

int hr_table_lookup(hr_table* table, const int64_t* keys, size_t count, int insert, float* rows,
                    size_t* unknown) {
  return guarded([&] {
    size_t missing = 0;
    if (insert != 0) {
      hotrow::lookup_or_insert(*table->table, one_feature(keys, count), {rows});
    } else {
      missing = hotrow::lookup(*table->table, one_feature(keys, count), {rows});
    }
    if (unknown != nullptr) *unknown = missing;
  });
}

int hr_table_update(hr_table* table, const int64_t* keys, size_t count, const float* gradients) {
  return guarded([&] {
    hotrow::backward(*table->table, one_feature(keys, count), {gradients},
                     hotrow::Backward::kUpdate, 0);
  });
}

size_t hr_table_shard_count(const hr_table* table) { return table->table->shard_count(); }

int hr_table_shard_size(const hr_table* table, size_t shard, size_t* size) {
  return guarded([&] { *size = table->table->shard_size(shard); });
}

int hr_table_export(const hr_table* table, size_t shard, size_t first, size_t count, int64_t* keys,
                    float* lines, uint32_t* clocks) {
  return guarded([&] { table->table->export_rows(shard, first, count, keys, lines, clocks); });
}

int hr_table_import(hr_table* table, const int64_t* keys, size_t count, const float* lines,
                    const uint32_t* clocks) {
  return guarded([&] { table->table->import_rows(keys, count, lines, clocks); });
}

int hr_table_digest(const hr_table* table, int weights_only, uint64_t digest[2]) {
  return guarded([&] { table->table->digest(weights_only != 0, digest); });
}

void hr_table_clear(hr_table* table) { table->table->clear(); }

int hr_lookup(hr_table* table, size_t width, const hr_feature* features, size_t count, int insert,
              float* const* pooled) {
  return guarded([&] {
    check_width(*table->table, width);
    const std::vector<float*> outputs(pooled, pooled + count);
    if (insert != 0) {
      hotrow::lookup_or_insert(*table->table, to_features(features, count), outputs);
    } else {
      hotrow::lookup(*table->table, to_features(features, count), outputs);
    }
  });
}

size_t hr_next_slot(hr_table* table) { return table->table->next_slot(); }

int hr_backward(hr_table* table, size_t width, size_t slot, const hr_feature* features,
                size_t count, const float* const* gradients, int commit) {
  return guarded([&] {
    check_width(*table->table, width);
    hotrow::backward(*table->table, to_features(features, count),
                     std::vector<const float*>(gradients, gradients + count),
                     commit != 0 ? hotrow::Backward::kCommit : hotrow::Backward::kAccumulate, slot);
  });
}

int hr_commit(hr_table* table, const float* witness) {
  return guarded([&] { table->table->commit(witness); });
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
