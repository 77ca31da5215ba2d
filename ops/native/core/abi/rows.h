/* The part of the C ABI about single rows of a table, between steps. N keys, L bytes of a row line.
 * Calls return what those of abi/c_api.h return. */
#pragma once

#include "core/abi/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* keys: (N), any. found: (N), whether a key has a row. rows (may be null): those of the keys that
 * have one, each at its key's position; the others are left as they are. */
HR_API int hr_table_read(const hr_table* table, const int64_t* keys, size_t count,
                         const hr_rows* rows, uint8_t* found);
/* Removes the rows of keys (N), each with a tombstone of the next step. */
HR_API int hr_table_bury(hr_table* table, const int64_t* keys, size_t count, size_t* removed);

#ifdef __cplusplus
}
#endif
