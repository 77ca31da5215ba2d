/* The part of the C ABI for stores of exported rows (docs/formats.md, "Stored rows"). N keys, B
 * bytes of a stored row, V virtual shards. Calls return a status as in abi/c_api.h. */
#pragma once

#include "core/abi/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- readers of a generation ------------------------------------------------------------------ */
typedef struct hr_reader hr_reader;

typedef struct {
  const char* name; /* lives as long as the reader */
  size_t width;
  const char* row_type;
  size_t row_bytes; /* B */
  float default_value;
  uint64_t rows;
} hr_stored_table;

typedef struct {
  size_t table;        /* its number */
  const int64_t* keys; /* (N), distinct */
  size_t count;
  uint8_t* rows;      /* (N, B): of keys found */
  uint64_t* versions; /* (N), or null */
  uint8_t* states;    /* (N): 0 unknown, 1 found, 2 failed */
} hr_read_request;

/* complete: 0 also accepts a generation that is being written. */
HR_API int hr_lmdb_reader_open(const char* directory, const char* generation, int complete,
                               hr_reader** reader);
HR_API void hr_reader_close(hr_reader* reader);
HR_API size_t hr_reader_table_count(const hr_reader* reader);
HR_API void hr_reader_table(const hr_reader* reader, size_t number, hr_stored_table* table);
/* failure: the error code of keys that failed, with its message in hr_last_error(); or 0. */
HR_API int hr_reader_read(const hr_reader* reader, const hr_read_request* requests, size_t count,
                          double timeout_seconds, int* failure);

/* For readers of LMDB only. entries: tombstones too. */
HR_API int hr_lmdb_reader_size(const hr_reader* reader, size_t table, size_t* entries);
/* Reads up to `count` entries after the key `after` in the store's order; from_start: from the
 * first. */
HR_API int hr_lmdb_reader_scan(const hr_reader* reader, size_t table, int from_start, int64_t after,
                               size_t count, int64_t* keys, uint8_t* rows, uint64_t* versions,
                               size_t* written);
/* digests: (V, 3): rows and the two sums. */
HR_API size_t hr_lmdb_reader_shards(const hr_reader* reader);
HR_API int hr_lmdb_reader_digests(const hr_reader* reader, size_t table, uint64_t* digests);

/* --- writing the embedded store --------------------------------------------------------------- */
typedef struct hr_lmdb_writer hr_lmdb_writer;

HR_API int hr_lmdb_writer_open(const char* directory, const char* generation, const char* table,
                               size_t row_bytes, hr_lmdb_writer** writer);
HR_API int hr_lmdb_writer_write(hr_lmdb_writer* writer, const int64_t* keys, size_t count,
                                const uint8_t* rows, uint64_t version);
/* Replaces only older versions; *written: how many rows were written. */
HR_API int hr_lmdb_writer_put(hr_lmdb_writer* writer, const int64_t* keys, size_t count,
                              const uint8_t* rows, const uint64_t* versions, size_t* written);
HR_API void hr_lmdb_writer_close(hr_lmdb_writer* writer);
HR_API int hr_lmdb_drop_table(const char* directory, const char* generation, const char* table);

/* --- blocks of cuts in the embedded store ----------------------------------------------------- */
typedef struct hr_lmdb_blocks hr_lmdb_blocks;

HR_API int hr_lmdb_blocks_open(const char* directory, const char* generation, const char* name,
                               hr_lmdb_blocks** blocks);
HR_API void hr_lmdb_blocks_close(hr_lmdb_blocks* blocks);
HR_API int hr_lmdb_blocks_put(hr_lmdb_blocks* blocks, const int64_t* numbers,
                              const char* const* bytes, const size_t* lengths, size_t count);
typedef void (*hr_take_bytes)(void* context, const char* bytes, size_t length);
/* Calls take once, or not at all when there is no such block. */
HR_API int hr_lmdb_blocks_get(const hr_lmdb_blocks* blocks, int64_t number, hr_take_bytes take,
                              void* context);

/* --- control records of the embedded store ---------------------------------------------------- */
typedef struct hr_lmdb_records hr_lmdb_records;

// patience_ms: how long writes of this process to the store wait for those of others.
HR_API int hr_lmdb_records_open(const char* directory, int create, int64_t patience_ms,
                                hr_lmdb_records** records);
HR_API void hr_lmdb_records_close(hr_lmdb_records* records);
/* Calls take(context, text, bytes) once, or not at all when there is no such record. */
typedef void (*hr_take_text)(void* context, const char* text, size_t bytes);
HR_API int hr_lmdb_records_get(const hr_lmdb_records* records, const char* name, hr_take_text take,
                               void* context);
/* Makes all `count` changes, or none. expected, texts: null means absent. */
HR_API int hr_lmdb_records_swap(hr_lmdb_records* records, const char* const* names,
                                const char* const* expected, const char* const* texts, size_t count,
                                int* swapped);
HR_API int hr_lmdb_records_list(const hr_lmdb_records* records, const char* prefix,
                                hr_take_text take, void* context);
HR_API int hr_lmdb_records_next_number(hr_lmdb_records* records, uint64_t* number);

#ifdef __cplusplus
}
#endif
