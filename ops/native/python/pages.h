#pragma once

#include "python/binding.h"

// Binds stored rows and their pages.
void bind_pages(nb::module_& m);
