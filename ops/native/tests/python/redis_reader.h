#pragma once

#include "python/binding.h"

// Binds RedisReader, a RowReader of the rows of a generation in Redis: core/abi/redis.h has its
// arguments, core/redis/reader.h the failures of a read. RowReader must be bound.
void bind_redis_reader(nb::module_& m);
