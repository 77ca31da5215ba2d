/* The part of the C ABI that reads stored rows from Redis. Readers are those of abi/store.h. */
#pragma once

#include "core/abi/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char* username; /* "": AUTH with the password alone */
  const char* password; /* "": no AUTH */
  int database;
  double connect_seconds; /* to connect */
  double silence_seconds; /* after this, a silent node counts as failed */
  size_t most_reads;      /* at a time, each with up to one connection a node */
} hr_redis_access;

/* record: the generation's control record. topology: see parse_redis_topology. */
HR_API int hr_redis_reader_open(const char* record, const char* topology,
                                const hr_redis_access* access, hr_reader** reader);
/* For readers of Redis only; may be called while other threads read. */
HR_API int hr_redis_reader_set_topology(const hr_reader* reader, const char* topology);
/* The same; as RedisReader::set_fence. */
HR_API int hr_redis_reader_set_fence(const hr_reader* reader, uint64_t oldest);
/* JSON: see RedisReader::statistics. */
HR_API int hr_redis_reader_statistics(const hr_reader* reader, hr_take_text take, void* context);

#ifdef __cplusplus
}
#endif
