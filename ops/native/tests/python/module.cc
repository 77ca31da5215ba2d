// The module hotrow_native_readers: how a server reads stored rows, for tests and benchmarks in
// Python. It links the same libhotrow_core.so as hotrow._native and takes its readers, too.
#include "python/binding.h"
#include "python/errors.h"
#include "tests/python/decode_rows.h"
#include "tests/python/redis_reader.h"
#include "tests/python/serving_lookup.h"

NB_MODULE(hotrow_native_readers, m) {
  m.doc() = "Readers of stored rows, their cache and their lookups, for tests and benchmarks.";
  nb::module_::import_("hotrow.native");  // binds RowReader, the base class of the readers
  set_error_factory(nb::module_::import_("hotrow.errors").attr("from_status"));
  bind_decode_rows(m);
  bind_redis_reader(m);
  bind_serving_lookup(m);
}
