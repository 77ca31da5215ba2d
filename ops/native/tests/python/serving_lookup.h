#pragma once

#include "python/binding.h"

// Binds MemoryReader, HotRows and ServingLookup (core/abi/serving.h). RowReader must be bound.
void bind_serving_lookup(nb::module_& m);
