// Shared by the files of the binding: array types and the check of a status.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "core/abi/c_api.h"

namespace nb = nanobind;

// Contiguous numpy arrays. Int64s: (N); Floats2: (N, width).
using Int64s = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Int32s = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Uint64s = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Uint32s = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes2 = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats2 = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Raises the Python exception for a status that is not 0. Needs the GIL.
[[noreturn]] void raise_status(int code);
inline void check(int code) {
  if (code != 0) raise_status(code);
}

// Runs a call of the core without the GIL, then raises its error, if any.
template <typename Call>
void run(Call&& call) {
  int code;
  {
    nb::gil_scoped_release release;
    code = call();
  }
  check(code);
}

// A new numpy array that owns its memory.
template <typename T>
nb::ndarray<nb::numpy, T> make_array(std::initializer_list<size_t> shape, T** data) {
  size_t count = 1;
  for (size_t extent : shape) count *= extent;
  *data = new T[count == 0 ? 1 : count];
  nb::capsule owner(*data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T>(*data, shape, owner);
}

// Fails with ValueError unless two lengths agree.
inline void check_length(const char* what, size_t got, size_t wanted) {
  if (got != wanted) {
    throw nb::value_error((std::string(what) + ": length " + std::to_string(got) + ", must be " +
                           std::to_string(wanted))
                              .c_str());
  }
}

inline std::string hex_digest(const uint64_t digest[2]) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(digest[0]),
                static_cast<unsigned long long>(digest[1]));
  return text;
}

void bind_numbers(nb::module_& m);
void bind_dispatch(nb::module_& m);
void bind_table(nb::module_& m);
void bind_store(nb::module_& m);
void bind_serving(nb::module_& m);
void bind_device(nb::module_& m);
void bind_ranks(nb::module_& m);

// The core's table behind a Python one. Fails with TypeError.
hr_table* table_of(nb::handle table);
