// The module hotrow._native: what Python sees of the core. Arguments are checked here, the GIL is
// released around the work, and errors become the exceptions of the factory that was set.
#include "python/binding.h"
#include "python/pages.h"
#include "python/redis_reader.h"
#include "python/serving_lookup.h"

namespace {

nb::object& error_factory() {
  static auto* factory = new nb::object();
  return *factory;
}

}  // namespace

void raise_status(int code) {
  const std::string message = hr_last_error();
  if (!error_factory().is_valid()) throw std::runtime_error(message);
  nb::object error = error_factory()(code, message);
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

NB_MODULE(_native, m) {
  m.doc() = "The native core of Hotrow: dispatch, tables, stores, the serving registry.";
  m.attr("built_for_tensorflow") = HOTROW_TF_VERSION;
  m.def(
      "set_error_factory", [](nb::object factory) { error_factory() = std::move(factory); },
      nb::arg("factory"), "Sets factory(code: int, message: str) -> exception for failed calls.");
  bind_numbers(m);
  bind_dispatch(m);
  bind_table(m);
  bind_store(m);
  bind_redis_reader(m);
  bind_serving(m);
  bind_pages(m);
  bind_serving_lookup(m);
  bind_device(m);
  bind_ranks(m);
}
