#include "python/errors.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "python/binding.h"

namespace {

nb::object& error_factory() {
  static auto* factory = new nb::object();
  return *factory;
}

}  // namespace

void set_error_factory(nb::object factory) { error_factory() = std::move(factory); }

void raise_status(int code) {
  const std::string message = hr_last_error();
  if (!error_factory().is_valid()) throw std::runtime_error(message);
  nb::object error = error_factory()(code, message);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}
