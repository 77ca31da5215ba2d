#include "python/pages.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string_view>
#include <vector>

#include "core/abi/pages.h"

namespace {

nb::object encode_rows(const std::string& type, Floats2 weights) {
  const size_t count = weights.shape(0), width = weights.shape(1);
  size_t row_bytes = 0;
  check(hr_row_bytes(type.c_str(), width, &row_bytes));
  uint8_t* rows;
  auto result = make_array<uint8_t>({count, row_bytes}, &rows);
  run([&] { return hr_encode_rows(type.c_str(), weights.data(), count, width, rows); });
  return nb::cast(result);
}

// A list of bytes; frees the names.
nb::list to_list(hr_names* names) {
  const std::unique_ptr<hr_names, void (*)(hr_names*)> owner(names, hr_names_free);
  const auto* offsets = reinterpret_cast<const uint64_t*>(names->offsets.data);
  const auto* text = reinterpret_cast<const char*>(names->names.data);
  nb::list list;
  for (size_t i = 0; i + 1 < names->offsets.size / sizeof(uint64_t); ++i) {
    list.append(nb::bytes(text + offsets[i], offsets[i + 1] - offsets[i]));
  }
  return list;
}

nb::object store_names(size_t shards, uint64_t number) {
  hr_names names;
  std::vector<uint32_t> slots(shards <= 4096 ? shards : 0);
  check(hr_store_markers(shards, number, &names, slots.data()));
  return nb::make_tuple(to_list(&names), nb::cast(slots));
}

nb::list page_names(size_t shards, uint64_t number, size_t table, uint64_t pages, size_t shard,
                    uint64_t first, std::optional<uint64_t> count) {
  const hr_page_place place = {shards, number, table, pages};
  hr_names names;
  const uint64_t rest = first < pages ? pages - first : 0;
  run([&] { return hr_store_page_names(&place, shard, first, count.value_or(rest), &names); });
  return to_list(&names);
}

nb::object page_of_keys(Int64s keys, size_t shards, uint64_t pages) {
  int32_t* shard;
  int64_t* page;
  auto shard_array = make_array<int32_t>({keys.shape(0)}, &shard);
  auto page_array = make_array<int64_t>({keys.shape(0)}, &page);
  run([&] { return hr_store_pages_of(keys.data(), keys.shape(0), shards, pages, shard, page); });
  return nb::make_tuple(shard_array, page_array);
}

nb::list pack_pages(Int64s keys, Bytes2 rows, uint64_t version, size_t shards, uint64_t number,
                    size_t table, uint64_t pages,
                    const std::optional<std::vector<uint32_t>>& only) {
  check_length("pack_pages: rows", rows.shape(0), keys.shape(0));
  nb::list parts;
  if (only.has_value() && only->empty()) return parts;
  const hr_page_place place = {shards, number, table, pages};
  hr_packed_pages* raw = nullptr;
  run([&] {
    return hr_pages_pack(&place, keys.data(), rows.data(), rows.shape(0), rows.shape(1), version,
                         only.has_value() ? only->data() : nullptr,
                         only.has_value() ? only->size() : 0, &raw);
  });
  const std::unique_ptr<hr_packed_pages, void (*)(hr_packed_pages*)> packed(raw, hr_pages_free);
  std::vector<char*> payloads(hr_pages_parts(raw));
  for (size_t p = 0; p < payloads.size(); ++p) {
    uint32_t shard;
    size_t commands, bytes;
    hr_pages_part(raw, p, &shard, &commands, &bytes);
    PyObject* payload = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes));
    if (payload == nullptr) throw nb::python_error();
    payloads[p] = PyBytes_AS_STRING(payload);
    parts.append(nb::make_tuple(shard, commands, nb::steal(payload)));
  }
  run([&] {
    for (size_t p = 0; p < payloads.size(); ++p) {
      if (const int code = hr_pages_write(raw, p, payloads[p]); code != 0) return code;
    }
    return 0;
  });
  return parts;
}

nb::object record_digests(Int64s keys, Bytes2 rows, size_t shards) {
  check_length("record_digests: rows", rows.shape(0), keys.shape(0));
  // The core refuses a number of shards that is too large, before it writes.
  const size_t room = shards <= 4096 ? shards : 0;
  uint64_t* sums;
  auto result = make_array<uint64_t>({room, 3}, &sums);
  std::fill_n(sums, 3 * room, 0);
  run([&] {
    return hr_rows_digest(keys.data(), rows.data(), rows.shape(0), rows.shape(1), shards, sums);
  });
  return nb::cast(result);
}

nb::object page_digest(nb::list values, size_t row_bytes, size_t shards, uint64_t number,
                       size_t table, uint64_t pages, size_t shard, uint64_t first_page) {
  std::vector<const char*> data;
  std::vector<size_t> lengths;
  // Another thread may change the list while the GIL is released.
  std::vector<nb::object> kept;
  for (nb::handle value : values) {
    if (!value.is_none() && !nb::isinstance<nb::bytes>(value)) {
      throw nb::type_error("page_digest: values must be bytes or None");
    }
    kept.push_back(nb::borrow(value));
    data.push_back(value.is_none() ? nullptr : PyBytes_AS_STRING(value.ptr()));
    lengths.push_back(value.is_none() ? 0 : static_cast<size_t>(PyBytes_GET_SIZE(value.ptr())));
  }
  const hr_page_place place = {shards, number, table, pages};
  uint64_t* sums;
  auto result = make_array<uint64_t>({3}, &sums);
  std::fill_n(sums, 3, 0);
  run([&] {
    return hr_pages_digest(&place, shard, first_page, data.data(), lengths.data(), data.size(),
                           row_bytes, sums);
  });
  return nb::cast(result);
}

}  // namespace

void bind_pages(nb::module_& m) {
  m.def("encode_rows", &encode_rows, nb::arg("row_type"), nb::arg("weights"),
        "Returns uint8 [N, B]: weights float32 [N, D] as a store keeps them.");
  m.def("store_names", &store_names, nb::arg("shards"), nb::arg("number"),
        "Returns (markers, slots) of the virtual shards of a generation.");
  m.def("page_names", &page_names, nb::arg("shards"), nb::arg("number"), nb::arg("table"),
        nb::arg("pages"), nb::arg("shard"), nb::arg("first") = 0, nb::arg("count") = nb::none(),
        "Returns the names of a shard's pages of a table, from number `first` on.");
  m.def("page_of_keys", &page_of_keys, nb::arg("keys").noconvert(), nb::arg("shards"),
        nb::arg("pages"), "Returns (shard int32 [N], page int64 [N]) of keys int64 [N].");
  m.def("pack_pages", &pack_pages, nb::arg("keys").noconvert(), nb::arg("rows"), nb::arg("version"),
        nb::arg("shards"), nb::arg("number"), nb::arg("table"), nb::arg("pages"),
        nb::arg("only") = nb::none(),
        "Returns (shard, commands, bytes of the protocol) of each shard that has rows.");
  m.def("record_digests", &record_digests, nb::arg("keys").noconvert(), nb::arg("rows"),
        nb::arg("shards"), "Returns uint64 [V, 3]: rows and digest of each shard.");
  m.def("page_digest", &page_digest, nb::arg("values"), nb::arg("row_bytes"), nb::arg("shards"),
        nb::arg("number"), nb::arg("table"), nb::arg("pages"), nb::arg("shard"),
        nb::arg("first_page") = 0,
        "Returns uint64 [3]: rows and digest of pages of one shard, from number `first_page` on.");
}
