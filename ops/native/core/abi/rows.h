/* The part of the C ABI for single rows of a table, between steps. N keys, L bytes of a row line.
 * Calls return a status as in abi/c_api.h. */
#pragma once

#include "core/abi/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* keys: (N), any. found: (N), whether a key has a row. rows (may be null): the rows found, each at
 * its key's position; other positions stay unchanged. */
HR_API int hr_table_read(const hr_table* table, const int64_t* keys, size_t count,
                         const hr_rows* rows, uint8_t* found);
/* Removes the rows of keys (N), each with a tombstone of the next step. */
HR_API int hr_table_bury(hr_table* table, const int64_t* keys, size_t count, size_t* removed);

#ifdef __cplusplus
}
#endif
