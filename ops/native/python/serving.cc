#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "python/binding.h"

namespace {

// Strings that the options point to.
struct ServingOptions {
  std::string store, generation, topology, username, password;
  hr_serving_options options{};

  explicit ServingOptions(const nb::dict& from) {
    options.timeout_millis = 0;
    for (auto [key, value] : from) take(nb::cast<std::string>(key), value);
    options.store = store.c_str();
    options.generation = generation.c_str();
    options.topology = topology.c_str();
    options.username = username.c_str();
    options.password = password.c_str();
  }

 private:
  void take(const std::string& name, nb::handle value) {
    if (name == "store") {
      store = nb::cast<std::string>(value);
    } else if (name == "generation") {
      generation = nb::cast<std::string>(value);
    } else if (name == "topology") {
      topology = nb::cast<std::string>(value);
    } else if (name == "username") {
      username = nb::cast<std::string>(value);
    } else if (name == "password") {
      password = nb::cast<std::string>(value);
    } else if (name == "database") {
      options.database = nb::cast<int>(value);
    } else if (name == "timeout_millis") {
      options.timeout_millis = nb::cast<int64_t>(value);
    } else if (name == "default_on_failure") {
      options.default_on_failure = nb::cast<bool>(value) ? 1 : 0;
    } else if (name == "cache_rows") {
      options.cache_rows = nb::cast<uint64_t>(value);
    } else if (name == "cache_bytes") {
      options.cache_bytes = nb::cast<uint64_t>(value);
    } else if (name == "cache_lru") {
      options.cache_lru = nb::cast<bool>(value) ? 1 : 0;
    } else {
      throw nb::type_error(("no serving option " + name).c_str());
    }
  }
};

}  // namespace

void bind_serving(nb::module_& m) {
  m.def(
      "check_serving_gpu", [](int gpu) { run([&] { return hr_serving_check_gpu(gpu); }); },
      nb::arg("gpu"), "Fails when hot rows cannot be cached on a GPU: it is not there.");
  m.def(
      "attach_serving",
      [](const std::string& manifest_path, const nb::kwargs& options) {
        const ServingOptions given(options);
        run([&] { return hr_serving_attach(manifest_path.c_str(), &given.options); });
      },
      nb::arg("manifest_path"), nb::arg("options"),
      "Opens the tables of a SavedModel that no server manages.");
  m.def(
      "detach_serving",
      [](const std::string& manifest_path) { hr_serving_detach(manifest_path.c_str()); },
      nb::arg("manifest_path"));
  m.def(
      "show_attached",
      [](const std::string& manifest_path, uint64_t shown,
         const std::vector<std::pair<std::string, uint64_t>>& layers, uint64_t fence) {
        std::vector<hr_cut_layer> files;
        for (const auto& [blocks, version] : layers) files.push_back({blocks.c_str(), version});
        run([&] {
          return hr_serving_show_attached(manifest_path.c_str(), shown, files.data(), files.size(),
                                          fence);
        });
      },
      nb::arg("manifest_path"), nb::arg("shown"), nb::arg("layers"), nb::arg("fence") = 0,
      "Lays cuts, files of their blocks with versions, over the rows; newer rows fail.");
  m.def(
      "set_attached_topology",
      [](const std::string& manifest_path, const std::string& topology) {
        run([&] {
          return hr_serving_set_attached_topology(manifest_path.c_str(), topology.c_str());
        });
      },
      nb::arg("manifest_path"), nb::arg("topology"));
}
