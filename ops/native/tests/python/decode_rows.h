#pragma once

#include "python/binding.h"

// Binds the inverse of `_native.encode_rows`.
void bind_decode_rows(nb::module_& m);
