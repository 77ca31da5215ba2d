#include <vector>

#include "python/binding.h"

namespace {

nb::object fingerprint_list(nb::list values, nb::bytes prefix) {
  std::string data;
  std::vector<int64_t> offsets(1, 0);
  for (nb::handle value : values) {
    if (!nb::isinstance<nb::bytes>(value)) {
      throw nb::type_error("fingerprint64: values must be bytes; encode text as UTF-8");
    }
    const nb::bytes text = nb::borrow<nb::bytes>(value);
    data.append(text.c_str(), text.size());
    offsets.push_back(static_cast<int64_t>(data.size()));
  }
  int64_t* keys;
  auto result = make_array<int64_t>({offsets.size() - 1}, &keys);
  run([&] {
    return hr_fingerprint64(prefix.c_str(), prefix.size(), data.data(), offsets.data(),
                            offsets.size() - 1, keys);
  });
  return nb::cast(result);
}

void check_offsets(const int64_t* offsets, size_t count, size_t bytes) {
  for (size_t i = 0; i <= count; ++i) {
    const bool ascends = i == 0 ? offsets[0] >= 0 : offsets[i] >= offsets[i - 1];
    if (!ascends || offsets[i] > static_cast<int64_t>(bytes)) {
      throw nb::value_error("fingerprint64_arrow: offsets must ascend inside the data");
    }
  }
}

nb::object fingerprint_arrow(Int64s offsets, Bytes data, nb::bytes prefix) {
  if (offsets.shape(0) == 0) throw nb::value_error("fingerprint64_arrow: offsets: at least one");
  const size_t count = offsets.shape(0) - 1;
  check_offsets(offsets.data(), count, data.shape(0));
  int64_t* keys;
  auto result = make_array<int64_t>({count}, &keys);
  run([&] {
    return hr_fingerprint64(prefix.c_str(), prefix.size(),
                            reinterpret_cast<const char*>(data.data()), offsets.data(), count,
                            keys);
  });
  return nb::cast(result);
}

nb::object fingerprint_arrow32(Int32s offsets, Bytes data, nb::bytes prefix) {
  int64_t* wide;
  auto offsets64 = make_array<int64_t>({offsets.shape(0)}, &wide);
  std::copy(offsets.data(), offsets.data() + offsets.shape(0), wide);
  return fingerprint_arrow(nb::cast<Int64s>(nb::cast(offsets64)), data, prefix);
}

nb::object unique(Int64s keys) {
  const size_t count = keys.shape(0);
  std::vector<int64_t> distinct(count);
  int32_t* inverse;
  auto inverse_array = make_array<int32_t>({count}, &inverse);
  size_t n = 0;
  run([&] { return hr_unique(keys.data(), count, distinct.data(), inverse, &n); });
  int64_t* out;
  auto unique_array = make_array<int64_t>({n}, &out);
  std::copy_n(distinct.data(), n, out);
  return nb::make_tuple(unique_array, inverse_array);
}

nb::object group_by_owner(Int64s keys, int32_t shards, bool hashed) {
  if (shards < 1) throw nb::value_error("group_by_owner: shards must be at least 1");
  int64_t *grouped, *counts;
  int32_t* order;
  auto grouped_array = make_array<int64_t>({keys.shape(0)}, &grouped);
  auto order_array = make_array<int32_t>({keys.shape(0)}, &order);
  auto counts_array = make_array<int64_t>({static_cast<size_t>(shards)}, &counts);
  run([&] {
    return hr_group_by_owner(keys.data(), keys.shape(0), shards, hashed, grouped, order, counts);
  });
  return nb::make_tuple(grouped_array, order_array, counts_array);
}

}  // namespace

void bind_dispatch(nb::module_& m) {
  m.def("fingerprint64", &fingerprint_list, nb::arg("values"), nb::arg("prefix") = nb::bytes("", 0),
        "Returns int64 [N]: FarmHash Fingerprint64 of prefix + value, the function of "
        "tf.fingerprint.");
  m.def("fingerprint64_arrow", &fingerprint_arrow, nb::arg("offsets").noconvert(), nb::arg("data"),
        nb::arg("prefix") = nb::bytes("", 0),
        "Returns int64 [N] for the N strings of an Arrow buffer: offsets [N + 1], data uint8 [M].");
  m.def("fingerprint64_arrow", &fingerprint_arrow32, nb::arg("offsets").noconvert(),
        nb::arg("data"), nb::arg("prefix") = nb::bytes("", 0));
  m.def("unique", &unique, nb::arg("keys").noconvert(),
        "Returns (unique int64 [U] in order of first appearance, inverse int32 [N]).");
  m.def("group_by_owner", &group_by_owner, nb::arg("keys").noconvert(), nb::arg("shards"),
        nb::arg("hashed") = false,
        "Returns (grouped int64 [N], order int32 [N], counts int64 [shards]): grouped = "
        "keys[order], the keys of shard 0 first. The owner is the mathematical modulus.");
}
