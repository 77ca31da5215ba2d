#pragma once

#include <nanobind/nanobind.h>

// Sets factory(code: int, message: str) -> exception, which `raise_status` of this module raises.
// Without a factory it raises RuntimeError.
void set_error_factory(nanobind::object factory);
