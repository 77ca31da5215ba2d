#pragma once

#include "python/binding.h"

// MemoryReader, HotRows and ServingLookup. After bind_row_reader.
void bind_serving_lookup(nb::module_& m);
