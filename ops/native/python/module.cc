// The module hotrow._native: the core's Python interface. The binding checks arguments, releases
// the GIL around the work, and raises errors as exceptions of the factory that was set.
#include "python/binding.h"
#include "python/errors.h"
#include "python/pages.h"

NB_MODULE(_native, m) {
  m.doc() = "The native core of Hotrow: dispatch, tables, stores, the serving registry.";
  m.attr("built_for_tensorflow") = HOTROW_TF_VERSION;
  m.def("set_error_factory", &set_error_factory, nb::arg("factory"),
        "Sets factory(code: int, message: str) -> exception for failed calls.");
  bind_numbers(m);
  bind_dispatch(m);
  bind_table(m);
  bind_store(m);
  bind_serving(m);
  bind_pages(m);
  bind_device(m);
  bind_ranks(m);
}
