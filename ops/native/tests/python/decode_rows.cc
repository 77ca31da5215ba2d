#include "tests/python/decode_rows.h"

#include "core/abi/pages.h"

namespace {

nb::object decode_rows(const std::string& type, size_t width, Bytes2 rows) {
  const size_t count = rows.shape(0);
  size_t row_bytes = 0;
  check(hr_row_bytes(type.c_str(), width, &row_bytes));
  check_length("decode_rows: bytes of a row", rows.shape(1), row_bytes);
  float* weights;
  auto result = make_array<float>({count, width}, &weights);
  run([&] { return hr_decode_rows(type.c_str(), rows.data(), count, width, weights); });
  return nb::cast(result);
}

}  // namespace

void bind_decode_rows(nb::module_& m) {
  m.def("decode_rows", &decode_rows, nb::arg("row_type"), nb::arg("dim"), nb::arg("rows"),
        "Returns float32 [N, D] of stored rows uint8 [N, B].");
}
