#include "core/abi/ranks.h"

#include <nanobind/stl/vector.h>

#include <memory>
#include <vector>

#include "python/binding.h"

namespace {

using AnyFloats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using AnyDoubles = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class Ranks {
 public:
  explicit Ranks(const std::string& name) {
    hr_ranks* raw = nullptr;
    check(hr_ranks_open(name.c_str(), &raw));
    ranks_.reset(raw, hr_ranks_release);
  }
  ~Ranks() {
    nb::gil_scoped_release release;  // waits for work in flight
    ranks_.reset();
  }
  Ranks(const Ranks&) = delete;

  int rank() const { return hr_ranks_rank(ranks_.get()); }
  int size() const { return hr_ranks_size(ranks_.get()); }

  void set_device(int wanted, const std::string& nccl_library, double timeout_seconds) const {
    check(hr_ranks_set_device(ranks_.get(), wanted, nccl_library.c_str(), timeout_seconds));
  }
  std::string device() const { return hr_ranks_device(ranks_.get()); }

  nb::list all_gather(Bytes data, const std::string& what) const {
    hr_gathered* raw = nullptr;
    run([&] {
      return hr_ranks_all_gather(ranks_.get(), what.c_str(), data.data(), data.shape(0), &raw);
    });
    const Gathered gathered(raw, hr_gathered_release);
    nb::list all;
    for (int r = 0; r < size(); ++r) {
      size_t bytes;
      const void* from = hr_gathered_data(raw, r, &bytes);
      uint8_t* to;
      nb::ndarray<nb::numpy, uint8_t> array = make_array<uint8_t>({bytes}, &to);
      std::copy_n(static_cast<const uint8_t*>(from), bytes, to);
      all.append(array);
    }
    return all;
  }

  nb::bytes broadcast(nb::bytes data, const std::string& what) const {
    const char* from = data.c_str();
    const size_t length = data.size();
    hr_gathered* raw = nullptr;
    run([&] { return hr_ranks_broadcast(ranks_.get(), what.c_str(), from, length, &raw); });
    const Gathered gathered(raw, hr_gathered_release);
    size_t bytes;
    const void* first = hr_gathered_data(raw, 0, &bytes);
    return nb::bytes(static_cast<const char*>(first), bytes);
  }

  void all_reduce_floats(AnyFloats values, const std::string& what) const {
    run([&] {
      return hr_ranks_all_reduce_floats(ranks_.get(), what.c_str(), values.data(), values.shape(0));
    });
  }
  void all_reduce_doubles(AnyDoubles values, const std::string& what) const {
    run([&] {
      return hr_ranks_all_reduce_doubles(ranks_.get(), what.c_str(), values.data(),
                                         values.shape(0));
    });
  }
  void barrier(const std::string& what) const {
    run([&] { return hr_ranks_barrier(ranks_.get(), what.c_str()); });
  }
  void fail(int code, const std::string& message) const {
    run([&] { return hr_ranks_fail(ranks_.get(), code, message.c_str()); });
  }

  nb::dict counts() const {
    nb::dict all;
    check(hr_ranks_counts(ranks_.get(), &all,
                          [](void* context, const char* stage, const hr_stage_count* count) {
                            nb::dict one;
                            one["calls"] = count->calls;
                            one["bytes_sent"] = count->bytes_sent;
                            one["bytes_received"] = count->bytes_received;
                            one["nanoseconds"] = count->nanoseconds;
                            (*static_cast<nb::dict*>(context))[stage] = one;
                          }));
    return all;
  }

 private:
  using Gathered = std::unique_ptr<hr_gathered, void (*)(hr_gathered*)>;
  std::shared_ptr<hr_ranks> ranks_;
};

}  // namespace

void bind_ranks(nb::module_& m) {
  m.def(
      "create_mpi_ranks",
      [](const std::string& name, const std::string& library, double timeout_seconds) {
        run([&] { return hr_ranks_create_mpi(name.c_str(), library.c_str(), timeout_seconds); });
      },
      nb::arg("name"), nb::arg("library"), nb::arg("timeout_seconds"));
  m.def(
      "create_thread_ranks",
      [](const std::vector<std::string>& names, double timeout_seconds) {
        std::vector<const char*> given;
        for (const std::string& name : names) given.push_back(name.c_str());
        check(
            hr_ranks_create_threads(given.data(), static_cast<int>(given.size()), timeout_seconds));
      },
      nb::arg("names"), nb::arg("timeout_seconds"));
  m.def(
      "drop_ranks",
      [](const std::string& name) { run([&] { return hr_ranks_drop(name.c_str()); }); },
      nb::arg("name"));
  nb::class_<Ranks>(m, "Ranks", "A rank of a group, and its collectives.")
      .def(nb::init<const std::string&>(), nb::arg("name"))
      .def_prop_ro("rank", &Ranks::rank)
      .def_prop_ro("size", &Ranks::size)
      .def("set_device", &Ranks::set_device, nb::arg("wanted"), nb::arg("nccl_library"),
           nb::arg("timeout_seconds"))
      .def_prop_ro("device", &Ranks::device)
      .def("all_gather", &Ranks::all_gather, nb::arg("data").noconvert(), nb::arg("what"))
      .def("broadcast", &Ranks::broadcast, nb::arg("data"), nb::arg("what"))
      .def("all_reduce_floats", &Ranks::all_reduce_floats, nb::arg("values").noconvert(),
           nb::arg("what"))
      .def("all_reduce_doubles", &Ranks::all_reduce_doubles, nb::arg("values").noconvert(),
           nb::arg("what"))
      .def("barrier", &Ranks::barrier, nb::arg("what"))
      .def("fail", &Ranks::fail, nb::arg("code"), nb::arg("message"))
      .def("counts", &Ranks::counts);
}
