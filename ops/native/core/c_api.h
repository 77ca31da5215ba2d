/* The C ABI of libhotrow_core.so: what the TensorFlow ops, the Python binding and the server call.
 *
 * Every call returns 0, or a status code with gRPC's numbers; hr_last_error() then tells why, for
 * the calling thread. Nothing here throws. Arrays belong to the caller. N keys, D weights a row,
 * S floats of optimizer state a row, B samples. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(HOTROW_CORE_BUILD)
#define HR_API __attribute__((visibility("default")))
#else
#define HR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The message of the last call of this thread that failed; valid until its next call. */
HR_API const char* hr_last_error(void);

/* --- keys and dispatch ------------------------------------------------------------------------ */
/* keys[i] = FarmHash Fingerprint64(prefix + data[offsets[i]:offsets[i+1]]); offsets: (N + 1). */
HR_API int hr_fingerprint64(const char* prefix, size_t prefix_bytes, const char* data,
                            const int64_t* offsets, size_t count, int64_t* keys);
/* unique: room for N, the first *unique_count are written; inverse: (N). */
HR_API int hr_unique(const int64_t* keys, size_t count, int64_t* unique, int32_t* inverse,
                     size_t* unique_count);
/* grouped, order: (N); counts: (shards). */
HR_API int hr_group_by_owner(const int64_t* keys, size_t count, int32_t shards, int hashed,
                             int64_t* grouped, int32_t* order, int64_t* counts);
/* rows[order[i], :] = grouped_rows[i, :]; both (N, width). */
HR_API int hr_combine(const float* grouped_rows, const int32_t* order, size_t count, size_t width,
                      float* rows);

/* --- tables ------------------------------------------------------------------------------------
 */
typedef struct hr_table hr_table; /* a reference; give it back with hr_table_release */

typedef struct {
  size_t width;            /* D */
  int64_t vocabulary_size; /* keys in [0, vocabulary_size); -1: every key */
  float default_value;     /* of the row an unknown key reads */
  int init_kind;           /* 0 constant, 1 uniform, 2 normal */
  float init_scale;
  uint64_t seed;
  const char* name;   /* for messages; the initial values depend on it */
  int optimizer_kind; /* 0 SGD, 1 Adagrad */
  float learning_rate;
  float initial_accumulator;
  float epsilon;
  int32_t shards; /* in this process */
  int hashed;     /* owner from the mixed key */
} hr_table_options;

HR_API int hr_table_create(const char* handle, const hr_table_options* options, hr_table** table);
HR_API int hr_table_open(const char* handle, hr_table** table);
HR_API void hr_table_release(hr_table* table);
/* Takes the name out of the registry; the table goes with its last reference. */
HR_API void hr_table_drop(const char* handle);

HR_API size_t hr_table_width(const hr_table* table);
HR_API size_t hr_table_line_width(const hr_table* table);
HR_API size_t hr_table_size(const hr_table* table);
HR_API size_t hr_table_bytes(const hr_table* table);
HR_API uint32_t hr_table_step(const hr_table* table);
HR_API void hr_table_set_step(hr_table* table, uint32_t step);
/* keys: (N), duplicates allowed; rows: (N, D). insert: unknown keys are inserted, else they read
 * the default row. unknown (may be null): how many distinct keys read the default row. */
HR_API int hr_table_lookup(hr_table* table, const int64_t* keys, size_t count, int insert,
                           float* rows, size_t* unknown);
/* Applies the optimizer once to each distinct key: gradients: (N, D). */
HR_API int hr_table_update(hr_table* table, const int64_t* keys, size_t count,
                           const float* gradients);
HR_API size_t hr_table_shard_count(const hr_table* table);
HR_API int hr_table_shard_size(const hr_table* table, size_t shard, size_t* size);
/* keys: (N); lines: (N, D + S); clocks: (N); each may be null. */
HR_API int hr_table_export(const hr_table* table, size_t shard, size_t first, size_t count,
                           int64_t* keys, float* lines, uint32_t* clocks);
HR_API int hr_table_import(hr_table* table, const int64_t* keys, size_t count, const float* lines,
                           const uint32_t* clocks);
HR_API int hr_table_digest(const hr_table* table, int weights_only, uint64_t digest[2]);
HR_API void hr_table_clear(hr_table* table);

/* --- fused lookups, for the ops -----------------------------------------------------------------
 */
typedef struct {
  const char* name;
  const int64_t* keys; /* (N) */
  size_t key_count;
  const int64_t* row_splits; /* (B + 1), or null: sample b has key b alone */
  size_t samples;            /* B */
  const float* weights;      /* (N), or null */
  int combiner;              /* 0 none, 1 sum, 2 mean, 3 sqrtn */
} hr_feature;

/* The witness of ShardedTable: its length, what a backward pass writes into its slot, and what
 * the anchor holds. */
#define HR_SLOTS 256
#define HR_UNIT 0x1p-20f
#define HR_UNCHANGED -0x1p-60f
/* width: D, checked against the table's. pooled[f]: (B_f, D), or (N_f, D) without a combiner. */
HR_API int hr_lookup(hr_table* table, size_t width, const hr_feature* features, size_t count,
                     int insert, float* const* pooled);
/* The slot of the next backward pass, in [0, HR_SLOTS). */
HR_API size_t hr_next_slot(hr_table* table);
/* gradients[f]: as pooled[f]. commit: apply now, else wait in the slot for hr_commit. */
HR_API int hr_backward(hr_table* table, size_t width, size_t slot, const hr_feature* features,
                       size_t count, const float* const* gradients, int commit);
/* witness: (HR_SLOTS); see ShardedTable::commit. */
HR_API int hr_commit(hr_table* table, const float* witness);

/* --- serving ------------------------------------------------------------------------------------
 */
typedef struct hr_serving hr_serving; /* a reference to the tables of a version */

HR_API int hr_serving_bind(const char* model, int64_t version, const char* manifest_path,
                           const char* store_url);
HR_API void hr_serving_unbind(const char* model, int64_t version);
/* The tables of (model, version) when a server has bound them; else those of the manifest.
 * model may be null. */
HR_API int hr_serving_open(const char* model, int64_t version, const char* manifest_path,
                           hr_serving** tables);
HR_API void hr_serving_release(hr_serving* tables);
/* width must be that of the store; unknown as in hr_table_lookup. */
HR_API int hr_serving_lookup(const hr_serving* tables, const char* table, size_t width,
                             const hr_feature* features, size_t count, float* const* pooled,
                             size_t* unknown);

/* --- the embedded store --------------------------------------------------------------------------
 */
typedef struct hr_store_writer hr_store_writer;
typedef struct hr_store_reader hr_store_reader;

HR_API int hr_store_writer_open(const char* directory, const char* generation, const char* table,
                                size_t width, hr_store_writer** writer);
HR_API int hr_store_writer_put(hr_store_writer* writer, const int64_t* keys, size_t count,
                               const float* rows);
HR_API void hr_store_writer_close(hr_store_writer* writer);
HR_API int hr_store_reader_open(const char* directory, const char* generation, const char* table,
                                size_t width, float default_value, hr_store_reader** reader);
HR_API int hr_store_reader_size(const hr_store_reader* reader, size_t* size);
HR_API int hr_store_reader_read(const hr_store_reader* reader, const int64_t* keys, size_t count,
                                float* rows, size_t* unknown);
/* Up to `count` rows after the key `after` in the store's order; from_start: from the first. */
HR_API int hr_store_reader_scan(const hr_store_reader* reader, int from_start, int64_t after,
                                size_t count, int64_t* keys, float* rows, size_t* written);
HR_API int hr_store_reader_digest(const hr_store_reader* reader, uint64_t digest[2]);
HR_API void hr_store_reader_close(hr_store_reader* reader);
/* Calls visit for each table of each generation; the strings live during the call. */
typedef void (*hr_store_visit)(void* context, const char* generation, const char* table,
                               size_t rows);
HR_API int hr_store_list(const char* directory, hr_store_visit visit, void* context);

#ifdef __cplusplus
}
#endif
