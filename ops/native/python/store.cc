#include "python/binding.h"

namespace {

// Both hold their object by a shared pointer that a running call copies: another thread may close
// it meanwhile.
class StoreWriter {
 public:
  StoreWriter(const std::string& directory, const std::string& generation, const std::string& table,
              size_t width)
      : width_(width) {
    hr_store_writer* raw = nullptr;
    check(hr_store_writer_open(directory.c_str(), generation.c_str(), table.c_str(), width, &raw));
    writer_.reset(raw, hr_store_writer_close);
  }

  void close() { writer_.reset(); }

  void put(Int64s keys, Floats2 rows) {
    const std::shared_ptr<hr_store_writer> writer = writer_;
    if (writer == nullptr) throw nb::value_error("the store writer is closed");
    check_length("put: rows", rows.shape(0), keys.shape(0));
    check_length("put: width of the rows", rows.shape(1), width_);
    run([&] { return hr_store_writer_put(writer.get(), keys.data(), keys.shape(0), rows.data()); });
  }

 private:
  std::shared_ptr<hr_store_writer> writer_;
  size_t width_;
};

class StoreReader {
 public:
  StoreReader(const std::string& directory, const std::string& generation, const std::string& table,
              size_t width, float default_value)
      : width_(width) {
    hr_store_reader* raw = nullptr;
    check(hr_store_reader_open(directory.c_str(), generation.c_str(), table.c_str(), width,
                               default_value, &raw));
    reader_.reset(raw, hr_store_reader_close);
  }

  void close() { reader_.reset(); }

  size_t size() const {
    const auto reader = open();
    size_t size;
    run([&] { return hr_store_reader_size(reader.get(), &size); });
    return size;
  }

  nb::object read(Int64s keys) const {
    const auto reader = open();
    float* rows;
    size_t unknown = 0;
    auto result = make_array<float>({keys.shape(0), width_}, &rows);
    run([&] {
      return hr_store_reader_read(reader.get(), keys.data(), keys.shape(0), rows, &unknown);
    });
    return nb::make_tuple(result, unknown);
  }

  nb::object scan(nb::object after, size_t count) const {
    const auto reader = open();
    const bool from_start = after.is_none();
    const int64_t last = from_start ? 0 : nb::cast<int64_t>(after);
    size_t n = 0;
    run([&] { return hr_store_reader_size(reader.get(), &n); });
    count = std::min(count, n);
    std::unique_ptr<int64_t[]> keys(new int64_t[count]);
    std::unique_ptr<float[]> rows(new float[count * width_]);
    run([&] {
      return hr_store_reader_scan(reader.get(), from_start, last, count, keys.get(), rows.get(),
                                  &n);
    });
    int64_t* keys_out;
    float* rows_out;
    auto keys_array = make_array<int64_t>({n}, &keys_out);
    auto rows_array = make_array<float>({n, width_}, &rows_out);
    std::copy_n(keys.get(), n, keys_out);
    std::copy_n(rows.get(), n * width_, rows_out);
    return nb::make_tuple(keys_array, rows_array);
  }

  std::string digest() const {
    const auto reader = open();
    uint64_t sums[2];
    run([&] { return hr_store_reader_digest(reader.get(), sums); });
    return hex_digest(sums);
  }

 private:
  std::shared_ptr<hr_store_reader> open() const {
    if (reader_ == nullptr) throw nb::value_error("the store reader is closed");
    return reader_;
  }
  std::shared_ptr<hr_store_reader> reader_;
  size_t width_;
};

}  // namespace

void bind_store(nb::module_& m) {
  nb::class_<StoreWriter>(m, "StoreWriter", "Writes rows of one table of one generation to LMDB.")
      .def(nb::init<const std::string&, const std::string&, const std::string&, size_t>(),
           nb::arg("directory"), nb::arg("generation"), nb::arg("table"), nb::arg("width"))
      .def("put", &StoreWriter::put, nb::arg("keys").noconvert(), nb::arg("rows"))
      .def("close", &StoreWriter::close);
  nb::class_<StoreReader>(m, "StoreReader", "Reads rows of one table of one generation from LMDB.")
      .def(nb::init<const std::string&, const std::string&, const std::string&, size_t, float>(),
           nb::arg("directory"), nb::arg("generation"), nb::arg("table"), nb::arg("width"),
           nb::arg("default_value") = 0.0f)
      .def_prop_ro("size", &StoreReader::size)
      .def("read", &StoreReader::read, nb::arg("keys").noconvert())
      .def("scan", &StoreReader::scan, nb::arg("after").none(), nb::arg("count"))
      .def("digest", &StoreReader::digest)
      .def("close", &StoreReader::close);
  m.def(
      "list_store",
      [](const std::string& directory) {
        nb::list entries;
        const auto visit = [](void* context, const char* generation, const char* table,
                              size_t rows) {
          static_cast<nb::list*>(context)->append(nb::make_tuple(generation, table, rows));
        };
        check(hr_store_list(directory.c_str(), visit, &entries));
        return entries;
      },
      nb::arg("directory"), "Returns (generation, table, rows) of every table of an LMDB store.");
  m.def(
      "bind_serving",
      [](const std::string& model, int64_t version, const std::string& manifest_path,
         const std::string& store_url) {
        run([&] {
          return hr_serving_bind(model.c_str(), version, manifest_path.c_str(), store_url.c_str());
        });
      },
      nb::arg("model"), nb::arg("version"), nb::arg("manifest_path"), nb::arg("store_url") = "",
      "Opens the tables of a version for the lookup ops of its session.");
  m.def(
      "unbind_serving",
      [](const std::string& model, int64_t version) { hr_serving_unbind(model.c_str(), version); },
      nb::arg("model"), nb::arg("version"));
}
