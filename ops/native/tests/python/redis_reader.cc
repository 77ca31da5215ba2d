#include "tests/python/redis_reader.h"

#include "core/abi/redis.h"
#include "python/row_reader.h"

namespace {

class RedisReader : public RowReader {
 public:
  RedisReader(const std::string& record, const std::string& topology, const std::string& username,
              const std::string& password, int database, double connect_seconds,
              double silence_seconds, size_t most_reads) {
    const hr_redis_access access = {username.c_str(), password.c_str(), database,
                                    connect_seconds,  silence_seconds,  most_reads};
    hr_reader* raw = nullptr;
    check(hr_redis_reader_open(record.c_str(), topology.c_str(), &access, &raw));
    take(raw);
  }

  void set_topology(const std::string& topology) const {
    const auto reader = open();
    run([&] { return hr_redis_reader_set_topology(reader.get(), topology.c_str()); });
  }

  void set_fence(uint64_t oldest) const {
    const auto reader = open();
    run([&] { return hr_redis_reader_set_fence(reader.get(), oldest); });
  }

  nb::object statistics() const {
    const auto reader = open();
    std::string text;
    const auto take = [](void* context, const char* data, size_t bytes) {
      static_cast<std::string*>(context)->assign(data, bytes);
    };
    run([&] { return hr_redis_reader_statistics(reader.get(), take, &text); });
    return nb::module_::import_("json").attr("loads")(text);
  }
};

}  // namespace

void bind_redis_reader(nb::module_& m) {
  nb::class_<RedisReader, RowReader>(m, "RedisReader", "Reads the rows of a generation from Redis.")
      .def(nb::init<const std::string&, const std::string&, const std::string&, const std::string&,
                    int, double, double, size_t>(),
           nb::arg("record"), nb::arg("topology"), nb::kw_only(), nb::arg("username") = "",
           nb::arg("password") = "", nb::arg("database") = 0, nb::arg("connect_seconds") = 0.5,
           nb::arg("silence_seconds") = 0.8, nb::arg("most_reads") = 32)
      .def("set_topology", &RedisReader::set_topology, nb::arg("topology"))
      .def("set_fence", &RedisReader::set_fence, nb::arg("oldest"))
      .def("statistics", &RedisReader::statistics);
}
