/* The part of the C ABI for stored rows and their pages (docs/formats.md, "Stored rows"). N rows of
 * D weights and B bytes, V virtual shards, P pages in each. Calls return a status as in
 * abi/c_api.h. */
#pragma once

#include "core/abi/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* type: "float32", "bfloat16", "float16" or "int8". */
HR_API int hr_row_bytes(const char* type, size_t width, size_t* bytes);
/* weights: (N, D); rows: (N, B). */
HR_API int hr_encode_rows(const char* type, const float* weights, size_t count, size_t width,
                          uint8_t* rows);
HR_API int hr_decode_rows(const char* type, const uint8_t* rows, size_t count, size_t width,
                          float* weights);

typedef struct { /* the place of a table's pages in the store */
  size_t shards;
  uint64_t number; /* of the generation */
  size_t table;    /* its number in the generation */
  uint64_t pages;
} hr_page_place;
/* The bytes of names one after the other, and where each begins and ends: (count + 1). */
typedef struct {
  hr_bytes names;
  hr_bytes offsets; /* uint64 */
} hr_names;
HR_API void hr_names_free(hr_names* names);
/* markers: of all V shards; slots: (V), may be null. */
HR_API int hr_store_markers(size_t shards, uint64_t number, hr_names* markers, uint32_t* slots);
/* The names of `count` pages of one shard, from `first` on. */
HR_API int hr_store_page_names(const hr_page_place* place, size_t shard, uint64_t first,
                               size_t count, hr_names* names);
/* shard, page: (N). */
HR_API int hr_store_pages_of(const int64_t* keys, size_t count, size_t shards, uint64_t pages,
                             int32_t* shard, int64_t* page);

typedef struct hr_packed_pages hr_packed_pages;
/* Groups rows into pages; see PackedPages. keys: (N); rows: (N, B). Both must live until the pages
 * are freed. only: (only_count) shards; only_count 0: all. */
HR_API int hr_pages_pack(const hr_page_place* place, const int64_t* keys, const uint8_t* rows,
                         size_t count, size_t row_bytes, uint64_t version, const uint32_t* only,
                         size_t only_count, hr_packed_pages** pages);
HR_API void hr_pages_free(hr_packed_pages* pages);
/* How many shards have rows. */
HR_API size_t hr_pages_parts(const hr_packed_pages* pages);
HR_API void hr_pages_part(const hr_packed_pages* pages, size_t part, uint32_t* shard,
                          size_t* commands, size_t* bytes);
HR_API int hr_pages_write(const hr_packed_pages* pages, size_t part, char* out);
/* sums: rows and two sums, added to. values: (count) pages from `first_page` on, or null. */
HR_API int hr_pages_digest(const hr_page_place* place, size_t shard, uint64_t first_page,
                           const char* const* values, const size_t* lengths, size_t count,
                           size_t row_bytes, uint64_t sums[3]);
/* sums: (V, 3), added to. */
HR_API int hr_rows_digest(const int64_t* keys, const uint8_t* rows, size_t count, size_t row_bytes,
                          size_t shards, uint64_t* sums);

#ifdef __cplusplus
}
#endif
