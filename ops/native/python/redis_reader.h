#pragma once

#include "python/binding.h"

// Reads stored rows from Redis.
void bind_redis_reader(nb::module_& m);
