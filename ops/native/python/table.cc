#include "python/binding.h"

namespace {

// A reference to a table of the registry.
class PyTable {
 public:
  PyTable(std::string handle, const hr_table_options& options) : handle_(std::move(handle)) {
    check(hr_table_create(handle_.c_str(), &options, &table_));
  }
  explicit PyTable(std::string handle) : handle_(std::move(handle)) {
    check(hr_table_open(handle_.c_str(), &table_));
  }
  ~PyTable() { hr_table_release(table_); }
  PyTable(const PyTable&) = delete;

  const std::string& handle() const { return handle_; }
  hr_table* get() const { return table_; }
  size_t width() const { return hr_table_width(table_); }
  size_t line_width() const { return hr_table_line_width(table_); }

  nb::object lookup(Int64s keys, bool insert) const {
    float* rows;
    auto result = make_array<float>({keys.shape(0), width()}, &rows);
    run([&] { return hr_table_lookup(table_, keys.data(), keys.shape(0), insert, rows, nullptr); });
    return nb::cast(result);
  }

  void update(Int64s keys, Floats2 gradients) const {
    check_length("update: gradients", gradients.shape(0), keys.shape(0));
    check_length("update: width of the gradients", gradients.shape(1), width());
    run([&] { return hr_table_update(table_, keys.data(), keys.shape(0), gradients.data()); });
  }

  size_t shard_size(size_t shard) const {
    if (shard >= hr_table_shard_count(table_)) throw nb::index_error("no such shard");
    size_t size;
    run([&] { return hr_table_shard_size(table_, shard, &size); });
    return size;
  }

  nb::object export_rows(size_t shard, size_t first, size_t count) const {
    if (shard >= hr_table_shard_count(table_)) throw nb::index_error("no such shard");
    // Checks the range before memory is taken for it.
    run([&] { return hr_table_export(table_, shard, first, count, nullptr, nullptr, nullptr); });
    int64_t* keys;
    float* lines;
    uint32_t* clocks;
    auto keys_array = make_array<int64_t>({count}, &keys);
    auto lines_array = make_array<float>({count, line_width()}, &lines);
    auto clocks_array = make_array<uint32_t>({count}, &clocks);
    run([&] { return hr_table_export(table_, shard, first, count, keys, lines, clocks); });
    return nb::make_tuple(keys_array, lines_array, clocks_array);
  }

  void import_rows(Int64s keys, Floats2 lines, Uint32s clocks) const {
    check_length("import_rows: lines", lines.shape(0), keys.shape(0));
    check_length("import_rows: width of the lines", lines.shape(1), line_width());
    check_length("import_rows: clocks", clocks.shape(0), keys.shape(0));
    run([&] {
      return hr_table_import(table_, keys.data(), keys.shape(0), lines.data(), clocks.data());
    });
  }

  std::string digest(bool weights_only) const {
    uint64_t sums[2];
    run([&] { return hr_table_digest(table_, weights_only, sums); });
    return hex_digest(sums);
  }

 private:
  std::string handle_;
  hr_table* table_ = nullptr;
};

}  // namespace

void bind_table(nb::module_& m) {
  nb::class_<PyTable>(m, "Table", "A table of the process-wide registry, reached by its handle.")
      .def(
          "__init__",
          [](PyTable* self, const std::string& handle, const std::string& name, size_t width,
             int64_t vocabulary_size, float default_value, int init_kind, float init_scale,
             uint64_t seed, int optimizer_kind, float learning_rate, float initial_accumulator,
             float epsilon, int32_t shards, bool hashed) {
            hr_table_options o{};
            o.width = width;
            o.vocabulary_size = vocabulary_size;
            o.default_value = default_value;
            o.init_kind = init_kind;
            o.init_scale = init_scale;
            o.seed = seed;
            o.name = name.c_str();
            o.optimizer_kind = optimizer_kind;
            o.learning_rate = learning_rate;
            o.initial_accumulator = initial_accumulator;
            o.epsilon = epsilon;
            o.shards = shards;
            o.hashed = hashed;
            new (self) PyTable(handle, o);
          },
          nb::kw_only(), nb::arg("handle"), nb::arg("name"), nb::arg("width"),
          nb::arg("vocabulary_size"), nb::arg("default_value"), nb::arg("init_kind"),
          nb::arg("init_scale"), nb::arg("seed"), nb::arg("optimizer_kind"),
          nb::arg("learning_rate"), nb::arg("initial_accumulator"), nb::arg("epsilon"),
          nb::arg("shards"), nb::arg("hashed"))
      .def_prop_ro("handle", &PyTable::handle)
      .def_prop_ro("width", &PyTable::width)
      .def_prop_ro("line_width", &PyTable::line_width)
      .def_prop_ro("size", [](const PyTable& t) { return hr_table_size(t.get()); })
      .def_prop_ro("bytes", [](const PyTable& t) { return hr_table_bytes(t.get()); })
      .def_prop_rw(
          "step", [](const PyTable& t) { return hr_table_step(t.get()); },
          [](const PyTable& t, uint32_t step) { hr_table_set_step(t.get(), step); })
      .def_prop_ro("shard_count", [](const PyTable& t) { return hr_table_shard_count(t.get()); })
      .def("shard_size", &PyTable::shard_size, nb::arg("shard"))
      .def("lookup", &PyTable::lookup, nb::arg("keys").noconvert(), nb::arg("insert") = false)
      .def("update", &PyTable::update, nb::arg("keys").noconvert(), nb::arg("gradients"))
      .def("export_rows", &PyTable::export_rows, nb::arg("shard"), nb::arg("first"),
           nb::arg("count"))
      .def("import_rows", &PyTable::import_rows, nb::arg("keys").noconvert(), nb::arg("lines"),
           nb::arg("clocks").noconvert())
      .def("digest", &PyTable::digest, nb::arg("weights_only") = false)
      .def("clear", [](const PyTable& t) { hr_table_clear(t.get()); });
  m.def(
      "drop_table", [](const std::string& handle) { hr_table_drop(handle.c_str()); },
      nb::arg("handle"), "Takes a table out of the registry.");
}
