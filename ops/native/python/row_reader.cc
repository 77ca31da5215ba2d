#include "python/row_reader.h"

#include <vector>

std::shared_ptr<hr_reader> RowReader::open() const {
  if (reader_ == nullptr) throw nb::value_error("the reader is closed");
  return reader_;
}

hr_stored_table RowReader::shape(size_t table) const {
  const auto reader = open();
  if (table >= hr_reader_table_count(reader.get())) throw nb::index_error("no such table");
  hr_stored_table facts;
  hr_reader_table(reader.get(), table, &facts);
  return facts;
}

nb::list RowReader::tables() const {
  const auto reader = open();
  nb::list all;
  for (size_t t = 0; t < hr_reader_table_count(reader.get()); ++t) {
    const hr_stored_table facts = shape(t);
    all.append(nb::make_tuple(facts.name, facts.width, facts.row_type, facts.row_bytes,
                              facts.default_value, facts.rows));
  }
  return all;
}

nb::object RowReader::read(nb::list requests, double timeout_seconds) const {
  const auto reader = open();
  std::vector<hr_read_request> asked;
  std::vector<Int64s> keys;
  nb::list answers;
  for (nb::handle request : requests) {
    const auto [table, wanted] = nb::cast<std::tuple<size_t, Int64s>>(request);
    keys.push_back(wanted);
    const size_t count = wanted.shape(0);
    hr_read_request one{table, wanted.data(), count, nullptr, nullptr, nullptr};
    auto rows = make_array<uint8_t>({count, shape(table).row_bytes}, &one.rows);
    auto versions = make_array<uint64_t>({count}, &one.versions);
    auto states = make_array<uint8_t>({count}, &one.states);
    asked.push_back(one);
    answers.append(nb::make_tuple(rows, versions, states));
  }
  int failure = 0;
  run([&] {
    return hr_reader_read(reader.get(), asked.data(), asked.size(), timeout_seconds, &failure);
  });
  return nb::make_tuple(answers, failure, failure == 0 ? "" : hr_last_error());
}

void bind_row_reader(nb::module_& m) {
  nb::class_<RowReader>(m, "RowReader", "Reads stored rows of a generation.")
      .def_prop_ro("tables", &RowReader::tables)
      .def("read", &RowReader::read, nb::arg("requests"), nb::arg("timeout_seconds") = 10.0)
      .def("close", &RowReader::close);
}
