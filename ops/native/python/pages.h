#pragma once

#include "python/binding.h"

// Rows as stores keep them, and pages of them.
void bind_pages(nb::module_& m);
