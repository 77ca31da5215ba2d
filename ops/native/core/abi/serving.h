/* The part of the C ABI for served lookups: rows in memory, the cache of hot rows, and lookups of
 * all features of a request. N keys, D weights and B bytes of a stored row. Calls return a status
 * as in abi/c_api.h, and are safe from several threads. */
#pragma once

#include "core/abi/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- rows in memory --------------------------------------------------------------------------- */
/* tables: row_bytes is ignored. */
HR_API int hr_memory_reader_create(const hr_stored_table* tables, size_t count, hr_reader** reader);
/* rows: (N, B). versions: (N), or null: all 0. A row replaces only rows that are not newer. */
HR_API int hr_memory_reader_put(hr_reader* reader, size_t table, const int64_t* keys, size_t count,
                                const uint8_t* rows, const uint64_t* versions);

/* --- hot rows --------------------------------------------------------------------------------- */
typedef struct hr_hot_rows hr_hot_rows; /* a reference */

typedef struct {
  uint64_t hits;     /* lookups, duplicates too */
  uint64_t misses;   /* lookups, duplicates too */
  uint64_t inserted; /* rows that came in */
  uint64_t evicted;  /* rows evicted for them */
  uint64_t refused;  /* rows that were fetched but not cached */
  uint64_t updated;  /* cached rows that changed */
  uint64_t removed;  /* cached rows that were removed: tombstones, invalidation */
  uint64_t rows;     /* cached now */
} hr_hot_counts;

/* A cache of the reader's tables. Either rows or bytes is 0. policy: 0 LFU, 1 LRU. */
HR_API int hr_hot_rows_create(const hr_reader* reader, uint64_t rows, uint64_t bytes, int policy,
                              hr_hot_rows** cache);
HR_API void hr_hot_rows_release(hr_hot_rows* cache);
/* Updates rows that changed in the store, which has them already. keys: (N), distinct; rows: (N,
 * B); versions: (N), with tombstones. */
HR_API int hr_hot_rows_update(hr_hot_rows* cache, size_t table, const int64_t* keys, size_t count,
                              const uint8_t* rows, const uint64_t* versions);
HR_API int hr_hot_rows_invalidate_shard(hr_hot_rows* cache, size_t shard, size_t shards);
HR_API int hr_hot_rows_clear(hr_hot_rows* cache);
HR_API void hr_hot_rows_size(const hr_hot_rows* cache, size_t* slots, size_t* bytes);
HR_API int hr_hot_rows_count(const hr_hot_rows* cache, size_t table, hr_hot_counts* counts);

/* --- hot rows on a GPU ------------------------------------------------------------------------ */
typedef struct hr_gpu_rows hr_gpu_rows;

/* The hottest rows of `below` in the memory of a GPU, by CUDA's number. bytes: of it, above 0.
 * policy: as above. Fails with FailedPrecondition without the GPU, or in a core without CUDA. */
HR_API int hr_gpu_rows_create(const hr_hot_rows* below, int gpu, uint64_t bytes, int policy,
                              hr_gpu_rows** rows);
HR_API void hr_gpu_rows_release(hr_gpu_rows* rows);
/* Brings rows of `below` in, and waits for them. keys: (N), distinct. */
HR_API int hr_gpu_rows_fill(hr_gpu_rows* rows, size_t table, const int64_t* keys, size_t count);
/* Rows that are there now. */
HR_API int hr_gpu_rows_size(const hr_gpu_rows* rows, uint64_t* size);

/* --- lookups ---------------------------------------------------------------------------------- */
typedef struct hr_lookup hr_lookup;

typedef struct {
  uint64_t keys;    /* of all features, duplicates too */
  uint64_t hits;    /* of these: cached */
  uint64_t fetched; /* distinct keys that were not cached */
  uint64_t unknown; /* of these: the store has no row */
  uint64_t failed;  /* of these: could not be read */
  int failure;      /* the error code, with its message in hr_last_error(); or 0 */
} hr_lookup_report;

typedef struct { /* of a table, since the start */
  uint64_t fetched;
  uint64_t unknown;
  uint64_t failed;
  uint64_t defaulted; /* keys, duplicates too, that read the default row because of a failure */
} hr_lookup_counts;

/* cache: null: all rows are read. Cache and reader must outlive the lookup. on_store_failure: 0
 * fails with Unavailable, 1 returns default rows. share_fetches: concurrent lookups fetch a row
 * once. */
HR_API int hr_lookup_create(const hr_reader* reader, hr_hot_rows* cache, int on_store_failure,
                            int share_fetches, hr_lookup** lookup);
HR_API void hr_lookup_release(hr_lookup* lookup);
/* features[f].table: a number of the reader's. pooled[f]: (B_f, D), or (N_f, D) without a combiner.
 * executor: null: the caller's thread. */
HR_API int hr_lookup_run(const hr_lookup* lookup, const hr_feature* features, size_t count,
                         float* const* pooled, double timeout_seconds, const hr_executor* executor,
                         hr_lookup_report* report);
/* The same with outputs on the GPU of `rows`, whose tables are the lookup's: they are written in
 * the order of the stream. */
HR_API int hr_lookup_run_on_gpu(const hr_lookup* lookup, hr_gpu_rows* rows, const hr_stream* on,
                                const hr_feature* features, size_t count, float* const* pooled,
                                double timeout_seconds, const hr_executor* executor,
                                hr_lookup_report* report);
HR_API int hr_lookup_count(const hr_lookup* lookup, size_t table, hr_lookup_counts* counts);
/* Keys that waited for another lookup's fetch. */
HR_API uint64_t hr_lookup_waited(const hr_lookup* lookup);

#ifdef __cplusplus
}
#endif
