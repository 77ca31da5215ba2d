#include "core/abi/store.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "python/binding.h"
#include "python/row_reader.h"

namespace {

void append_text(void* context, const char* text, size_t bytes) {
  static_cast<nb::list*>(context)->append(nb::str(text, bytes));
}

// Shared pointers hold the objects, and a running call copies them: another thread may close an
// object meanwhile.
class LmdbRecords {
 public:
  using Changes =
      std::vector<std::tuple<std::string, std::optional<std::string>, std::optional<std::string>>>;

  LmdbRecords(const std::string& directory, bool create, double patience_seconds) {
    hr_lmdb_records* raw = nullptr;
    const auto patience_ms = static_cast<int64_t>(1000 * patience_seconds);
    check(hr_lmdb_records_open(directory.c_str(), create, patience_ms, &raw));
    records_.reset(raw, hr_lmdb_records_close);
  }

  void close() { records_.reset(); }

  nb::object get(const std::string& name) const {
    nb::list found;
    check(hr_lmdb_records_get(open().get(), name.c_str(), append_text, &found));
    return found.size() == 0 ? nb::none() : nb::object(found[0]);
  }

  // changes: [(name, expected, text)].
  bool swap_all(const Changes& changes) const {
    const auto records = open();
    std::vector<const char*> names, expected, texts;
    for (const auto& [name, before, after] : changes) {
      names.push_back(name.c_str());
      expected.push_back(before ? before->c_str() : nullptr);
      texts.push_back(after ? after->c_str() : nullptr);
    }
    int swapped = 0;
    run([&] {
      return hr_lmdb_records_swap(records.get(), names.data(), expected.data(), texts.data(),
                                  names.size(), &swapped);
    });
    return swapped != 0;
  }

  nb::list names(const std::string& prefix) const {
    nb::list found;
    check(hr_lmdb_records_list(open().get(), prefix.c_str(), append_text, &found));
    return found;
  }

  uint64_t next_number() const {
    const auto records = open();
    uint64_t number = 0;
    run([&] { return hr_lmdb_records_next_number(records.get(), &number); });
    return number;
  }

 private:
  std::shared_ptr<hr_lmdb_records> open() const {
    if (records_ == nullptr) throw nb::value_error("the store is closed");
    return records_;
  }
  std::shared_ptr<hr_lmdb_records> records_;
};

class LmdbBlocks {
 public:
  LmdbBlocks(const std::string& directory, const std::string& generation, const std::string& name) {
    hr_lmdb_blocks* raw = nullptr;
    check(hr_lmdb_blocks_open(directory.c_str(), generation.c_str(), name.c_str(), &raw));
    blocks_.reset(raw, hr_lmdb_blocks_close);
  }

  void close() { blocks_.reset(); }

  void put(const std::vector<int64_t>& numbers, const std::vector<nb::bytes>& blocks) const {
    const auto opened = open();
    check_length("put: blocks", blocks.size(), numbers.size());
    std::vector<const char*> bytes;
    std::vector<size_t> lengths;
    for (const nb::bytes& block : blocks) {
      bytes.push_back(block.c_str());
      lengths.push_back(block.size());
    }
    run([&] {
      return hr_lmdb_blocks_put(opened.get(), numbers.data(), bytes.data(), lengths.data(),
                                numbers.size());
    });
  }

  nb::object get(int64_t number) const {
    nb::object found = nb::none();
    const auto take = [](void* context, const char* bytes, size_t length) {
      *static_cast<nb::object*>(context) = nb::bytes(bytes, length);
    };
    check(hr_lmdb_blocks_get(open().get(), number, take, &found));
    return found;
  }

 private:
  std::shared_ptr<hr_lmdb_blocks> open() const {
    if (blocks_ == nullptr) throw nb::value_error("the blocks are closed");
    return blocks_;
  }
  std::shared_ptr<hr_lmdb_blocks> blocks_;
};

class LmdbWriter {
 public:
  LmdbWriter(const std::string& directory, const std::string& generation, const std::string& table,
             size_t row_bytes)
      : row_bytes_(row_bytes) {
    hr_lmdb_writer* raw = nullptr;
    check(
        hr_lmdb_writer_open(directory.c_str(), generation.c_str(), table.c_str(), row_bytes, &raw));
    writer_.reset(raw, hr_lmdb_writer_close);
  }

  void close() { writer_.reset(); }

  void write(Int64s keys, Bytes2 rows, uint64_t version) {
    const auto writer = open(keys, rows);
    run([&] {
      return hr_lmdb_writer_write(writer.get(), keys.data(), keys.shape(0), rows.data(), version);
    });
  }

  size_t put(Int64s keys, Bytes2 rows, Uint64s versions) {
    const auto writer = open(keys, rows);
    check_length("put: versions", versions.shape(0), keys.shape(0));
    size_t written = 0;
    run([&] {
      return hr_lmdb_writer_put(writer.get(), keys.data(), keys.shape(0), rows.data(),
                                versions.data(), &written);
    });
    return written;
  }

 private:
  std::shared_ptr<hr_lmdb_writer> open(const Int64s& keys, const Bytes2& rows) const {
    if (writer_ == nullptr) throw nb::value_error("the store's writer is closed");
    check_length("rows", rows.shape(0), keys.shape(0));
    check_length("bytes of a row", rows.shape(1), row_bytes_);
    return writer_;
  }
  std::shared_ptr<hr_lmdb_writer> writer_;
  size_t row_bytes_;
};

class LmdbReader : public RowReader {
 public:
  LmdbReader(const std::string& directory, const std::string& generation, bool complete) {
    hr_reader* raw = nullptr;
    check(hr_lmdb_reader_open(directory.c_str(), generation.c_str(), complete, &raw));
    take(raw);
  }

  size_t size(size_t table) const {
    const auto reader = open();
    shape(table);
    size_t entries = 0;
    run([&] { return hr_lmdb_reader_size(reader.get(), table, &entries); });
    return entries;
  }

  nb::object scan(size_t table, std::optional<int64_t> after, size_t count) const {
    const auto reader = open();
    const size_t row_bytes = shape(table).row_bytes;
    count = std::min(count, size(table));
    int64_t* keys;
    uint8_t* rows;
    uint64_t* versions;
    auto keys_array = make_array<int64_t>({count}, &keys);
    auto rows_array = make_array<uint8_t>({count, row_bytes}, &rows);
    auto versions_array = make_array<uint64_t>({count}, &versions);
    size_t written = 0;
    run([&] {
      return hr_lmdb_reader_scan(reader.get(), table, !after, after.value_or(0), count, keys, rows,
                                 versions, &written);
    });
    const nb::slice first(nb::int_(0), nb::int_(written), nb::int_(1));
    return nb::make_tuple(nb::cast(keys_array)[first], nb::cast(rows_array)[first],
                          nb::cast(versions_array)[first]);
  }

  nb::object digests(size_t table) const {
    const auto reader = open();
    shape(table);
    uint64_t* sums;
    auto array = make_array<uint64_t>({hr_lmdb_reader_shards(reader.get()), 3}, &sums);
    run([&] { return hr_lmdb_reader_digests(reader.get(), table, sums); });
    return nb::cast(array);
  }
};

}  // namespace

void bind_store(nb::module_& m) {
  bind_row_reader(m);
  nb::class_<LmdbRecords>(m, "LmdbRecords", "Control records of an LMDB store.")
      .def(nb::init<const std::string&, bool, double>(), nb::arg("directory"), nb::arg("create"),
           nb::arg("patience_seconds") = 30.0)
      .def("get", &LmdbRecords::get, nb::arg("name"))
      .def("swap_all", &LmdbRecords::swap_all, nb::arg("changes"))
      .def("names", &LmdbRecords::names, nb::arg("prefix"))
      .def("next_number", &LmdbRecords::next_number)
      .def("close", &LmdbRecords::close);
  nb::class_<LmdbBlocks>(m, "LmdbBlocks", "Blocks of a cut beside the rows of a generation.")
      .def(nb::init<const std::string&, const std::string&, const std::string&>(),
           nb::arg("directory"), nb::arg("generation"), nb::arg("name"))
      .def("put", &LmdbBlocks::put, nb::arg("numbers"), nb::arg("blocks"))
      .def("get", &LmdbBlocks::get, nb::arg("number"))
      .def("close", &LmdbBlocks::close);
  nb::class_<LmdbWriter>(m, "LmdbWriter", "Writes rows of one table of one generation to LMDB.")
      .def(nb::init<const std::string&, const std::string&, const std::string&, size_t>(),
           nb::arg("directory"), nb::arg("generation"), nb::arg("table"), nb::arg("row_bytes"))
      .def("write", &LmdbWriter::write, nb::arg("keys").noconvert(), nb::arg("rows").noconvert(),
           nb::arg("version"))
      .def("put", &LmdbWriter::put, nb::arg("keys").noconvert(), nb::arg("rows").noconvert(),
           nb::arg("versions").noconvert())
      .def("close", &LmdbWriter::close);
  nb::class_<LmdbReader, RowReader>(m, "LmdbReader", "Reads the rows of a generation from LMDB.")
      .def(nb::init<const std::string&, const std::string&, bool>(), nb::arg("directory"),
           nb::arg("generation"), nb::arg("complete") = true)
      .def("size", &LmdbReader::size, nb::arg("table"))
      .def("scan", &LmdbReader::scan, nb::arg("table"), nb::arg("after").none(), nb::arg("count"))
      .def("digests", &LmdbReader::digests, nb::arg("table"));
  m.def(
      "drop_lmdb_table",
      [](const std::string& directory, const std::string& generation, const std::string& table) {
        run([&] {
          return hr_lmdb_drop_table(directory.c_str(), generation.c_str(), table.c_str());
        });
      },
      nb::arg("directory"), nb::arg("generation"), nb::arg("table"));
}
