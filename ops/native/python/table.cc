#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "core/abi/rows.h"
#include "python/binding.h"
#include "python/snapshot.h"

namespace {

// A required entry of an options dictionary.
template <typename T>
T entry(const nb::dict& options, const char* name) {
  if (!options.contains(name)) {
    throw nb::value_error((std::string("options lack ") + name).c_str());
  }
  return nb::cast<T>(options[name]);
}

hr_optimizer to_optimizer(const nb::dict& from) {
  hr_optimizer o{};
  o.kind = entry<int>(from, "kind");
  o.learning_rate = entry<float>(from, "learning_rate");
  o.clip_row_norm = entry<float>(from, "clip_row_norm");
  o.l2 = entry<float>(from, "l2");
  o.weight_decay = entry<float>(from, "weight_decay");
  o.momentum = entry<float>(from, "momentum");
  o.nesterov = entry<bool>(from, "nesterov");
  o.initial_accumulator = entry<float>(from, "initial_accumulator");
  o.epsilon = entry<float>(from, "epsilon");
  o.beta_1 = entry<double>(from, "beta_1");
  o.beta_2 = entry<double>(from, "beta_2");
  o.row_steps = entry<bool>(from, "row_steps");
  o.l1 = entry<float>(from, "l1");
  o.ftrl_l2 = entry<float>(from, "ftrl_l2");
  o.l2_shrinkage = entry<float>(from, "l2_shrinkage");
  o.beta = entry<float>(from, "beta");
  return o;
}

hr_admission to_admission(const nb::dict& from) {
  return {entry<int>(from, "kind"), entry<uint32_t>(from, "occurrences"),
          entry<uint64_t>(from, "expected_keys"), entry<double>(from, "error_rate")};
}

hr_expiry to_expiry(const nb::dict& from) {
  return {entry<uint32_t>(from, "after_steps"), entry<uint32_t>(from, "rare_count"),
          entry<uint32_t>(from, "rare_after_steps"), entry<uint32_t>(from, "sweep_steps"),
          entry<uint64_t>(from, "tombstones")};
}

// The text of `disk` lives as long as the dictionary.
hr_cache to_cache(const nb::dict& from) {
  const bool on_gpu = from.contains("gpu");
  return {entry<uint64_t>(from, "rows"), entry<uint64_t>(from, "bytes"),
          entry<int>(from, "policy"),    entry<const char*>(from, "disk"),
          on_gpu ? HR_GPU : HR_RAM,      on_gpu ? entry<int>(from, "gpu") : 0};
}

// For calls that wait for a step: the step may wait for a thread of Python that reads a snapshot.
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

// A reference to a table of the registry.
class PyTable {
 public:
  PyTable(std::string handle, const hr_table_options& options) : handle_(std::move(handle)) {
    check(hr_table_create(handle_.c_str(), &options, &table_));
    hr_table_layout(table_, &layout_);
    hr_table_columns(table_, &first_column_, &columns_, &width_);
  }
  ~PyTable() {
    nb::gil_scoped_release release;  // may wait for ranks that are threads of this process
    hr_table_release(table_);
  }
  PyTable(const PyTable&) = delete;

  const std::string& handle() const { return handle_; }
  hr_table* get() const { return table_; }
  size_t width() const { return width_; }
  nb::tuple columns() const { return nb::make_tuple(first_column_, columns_); }
  size_t line_bytes() const { return layout_.line_bytes; }

  nb::dict layout() const {
    nb::dict d;
    d["width"] = layout_.width;
    d["weights_type"] = layout_.weights_type;
    d["state_type"] = layout_.state_type;
    d["vectors"] = layout_.vectors;
    d["scalars"] = layout_.scalars;
    d["state_offset"] = layout_.state_offset;
    d["scalars_offset"] = layout_.scalars_offset;
    d["line_bytes"] = layout_.line_bytes;
    return d;
  }

  nb::object owns(Int64s keys) const {
    uint8_t* owned;
    auto result = make_array<uint8_t>({keys.shape(0)}, &owned);
    hr_table_owns(table_, keys.data(), keys.shape(0), owned);
    return nb::cast(result);
  }

  nb::object lookup(Int64s keys, bool insert) const {
    float* rows;
    auto result = make_array<float>({keys.shape(0), width()}, &rows);
    run([&] {
      return hr_table_lookup(table_, keys.data(), keys.shape(0), insert, rows, nullptr, nullptr);
    });
    return nb::cast(result);
  }

  void update(Int64s keys, Floats2 gradients, std::optional<float> learning_rate) const {
    check_length("update: gradients", gradients.shape(0), keys.shape(0));
    check_length("update: width of the gradients", gradients.shape(1), width());
    const float rate = learning_rate.value_or(std::numeric_limits<float>::quiet_NaN());
    run([&] {
      return hr_table_update(table_, keys.data(), keys.shape(0), gradients.data(), rate, nullptr);
    });
  }

  nb::tuple export_rows(uint64_t cursor, size_t max_rows) const {
    check_row_count(max_rows);
    RowsOut out(max_rows, line_bytes());
    size_t written = 0;
    uint64_t next = 0;
    const hr_rows arrays = out.arrays();
    run([&] { return hr_table_export(table_, cursor, max_rows, &arrays, &written, &next); });
    const nb::object after =
        next == std::numeric_limits<uint64_t>::max() ? nb::cast(-1) : nb::cast(next);
    return nb::tuple(nb::make_tuple(after) + out.finish(written));
  }

  void import_rows(Int64s keys, Bytes2 lines, Uint32s clocks, Uint32s counts,
                   std::optional<Uint32s> places) const {
    check_length("import_rows: lines", lines.shape(0), keys.shape(0));
    check_length("import_rows: bytes of a line", lines.shape(1), line_bytes());
    check_length("import_rows: clocks", clocks.shape(0), keys.shape(0));
    check_length("import_rows: counts", counts.shape(0), keys.shape(0));
    if (places) check_length("import_rows: places", places->shape(0), keys.shape(0));
    run([&] {
      return hr_table_import(table_, keys.data(), keys.shape(0), lines.data(), clocks.data(),
                             counts.data(), places ? places->data() : nullptr);
    });
  }

  size_t remove_rows(Int64s keys) const {
    size_t removed = 0;
    run([&] { return hr_table_remove(table_, keys.data(), keys.shape(0), &removed); });
    return removed;
  }

  nb::tuple read_rows(Int64s keys) const {
    const size_t count = keys.shape(0);
    RowsOut out(count, line_bytes());
    const hr_rows arrays = out.arrays();
    uint8_t* found;
    auto result = make_array<uint8_t>({count}, &found);
    run([&] { return hr_table_read(table_, keys.data(), count, &arrays, found); });
    return nb::tuple(nb::make_tuple(result) + out.finish(count));
  }

  nb::object has_rows(Int64s keys) const {
    uint8_t* found;
    auto result = make_array<uint8_t>({keys.shape(0)}, &found);
    run([&] { return hr_table_read(table_, keys.data(), keys.shape(0), nullptr, found); });
    return nb::cast(result);
  }

  size_t bury_rows(Int64s keys) const {
    size_t removed = 0;
    run([&] { return hr_table_bury(table_, keys.data(), keys.shape(0), &removed); });
    return removed;
  }

  void prefetch(Int64s keys) const {
    run([&] { return hr_table_prefetch(table_, keys.data(), keys.shape(0)); });
  }

  size_t warm_up(Int64s keys, Uint32s counts, double share) const {
    if (keys.shape(0) != counts.shape(0)) {
      throw nb::value_error("keys and counts differ in length");
    }
    size_t warmed = 0;
    run([&] {
      return hr_table_warm_up(table_, keys.data(), counts.data(), keys.shape(0), share, &warmed);
    });
    return warmed;
  }

  std::string digest(bool weights_only) const {
    uint64_t sums[2];
    run([&] { return hr_table_digest(table_, weights_only, sums); });
    return hex_digest(sums);
  }

  nb::dict statistics() const {
    hr_statistics s;
    {
      const nb::gil_scoped_release unlocked;
      hr_table_statistics(table_, &s);
    }
    nb::dict d;
    d["rows"] = s.rows;
    d["bytes"] = s.bytes;
    d["lookups"] = s.lookups;
    d["admitted"] = s.admitted;
    d["refused"] = s.refused;
    d["waiting"] = s.waiting;
    d["expired"] = s.expired;
    d["tombstones"] = s.tombstones;
    d["updates"] = s.updates;
    d["nonfinite_updates"] = s.nonfinite_updates;
    d["tombstones_dropped"] = s.tombstones_dropped;
    d["cache_slots"] = s.cache_slots;
    d["cache_hits"] = s.cache_hits;
    d["cache_hit_lookups"] = s.cache_hit_lookups;
    d["cache_misses"] = s.cache_misses;
    d["cache_inserted"] = s.cache_inserted;
    d["cache_evicted"] = s.cache_evicted;
    d["cache_written_back"] = s.cache_written_back;
    d["cache_prefetched"] = s.cache_prefetched;
    d["cache_stall_ns"] = s.cache_stall_ns;
    d["disk_bytes"] = s.disk_bytes;
    d["disk_lines_read"] = s.disk_lines_read;
    d["disk_lines_written"] = s.disk_lines_written;
    return d;
  }

  void begin_publishing(std::optional<uint32_t> since) const {
    run([&] { return hr_table_begin_publishing(table_, since ? &*since : nullptr); });
  }

  void mark_for_publishing(Int64s keys) const {
    run([&] { return hr_table_mark_for_publishing(table_, keys.data(), keys.shape(0)); });
  }

  nb::tuple tombstones() const {
    hr_bytes keys, steps;
    run([&] { return hr_table_tombstones(table_, &keys, &steps); });
    return nb::make_tuple(take_array<int64_t>(keys), take_array<uint32_t>(steps));
  }

  nb::bytes state() const {
    hr_bytes bytes;
    run([&] { return hr_table_state(table_, &bytes); });
    return take_bytes(&bytes);
  }

  void set_state(nb::bytes state) const {
    const auto* data = reinterpret_cast<const uint8_t*>(state.c_str());
    const size_t size = state.size();
    run([&] { return hr_table_set_state(table_, data, size); });
  }

  // counts: one a state.
  void merge_states(const std::vector<nb::bytes>& states, const std::vector<bool>& counts) const {
    std::vector<const uint8_t*> data;
    std::vector<size_t> sizes;
    for (const nb::bytes& state : states) {
      data.push_back(reinterpret_cast<const uint8_t*>(state.c_str()));
      sizes.push_back(state.size());
    }
    std::vector<uint8_t> counted(counts.begin(), counts.end());
    counted.resize(states.size());
    run([&] {
      return hr_table_merge_states(table_, data.data(), sizes.data(), counted.data(), data.size());
    });
  }

 private:
  std::string handle_;
  hr_table* table_ = nullptr;
  size_t first_column_ = 0, columns_ = 0, width_ = 0;
  hr_layout layout_{};
};

void rank_prefetch(const nb::list& tables, const nb::list& features) {
  std::vector<hr_table*> raw;
  for (nb::handle table : tables) raw.push_back(nb::cast<PyTable&>(table).get());
  std::vector<std::string> names;
  std::vector<hr_feature> native_features;
  names.reserve(features.size());
  for (nb::handle feature : features) {
    const nb::tuple t = nb::cast<nb::tuple>(feature);
    if (t.size() != 7) throw nb::value_error("rank_prefetch: a feature has 7 values");
    names.push_back(nb::cast<std::string>(t[0]));
    const auto keys = nb::cast<Int64s>(t[1], false);
    hr_feature f{};
    f.name = names.back().c_str();
    f.keys = keys.data();
    f.key_count = keys.shape(0);
    f.samples = nb::cast<size_t>(t[4]);
    if (!t[2].is_none()) {
      const auto splits = nb::cast<Int64s>(t[2], false);
      check_length("rank_prefetch: row_splits", splits.shape(0), f.samples + 1);
      f.row_splits = splits.data();
    }
    if (!t[3].is_none()) {
      const auto weights =
          nb::cast<nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(t[3],
                                                                                         false);
      check_length("rank_prefetch: weights", weights.shape(0), f.key_count);
      f.weights = weights.data();
    }
    f.combiner = nb::cast<int>(t[5]);
    f.table = nb::cast<size_t>(t[6]);
    native_features.push_back(f);
  }
  const hr_layer_call call{
      raw.data(), nullptr, raw.size(), native_features.data(), native_features.size(), nullptr};
  run([&] { return hr_rank_prefetch(&call); });
}

nb::list open_snapshots(const nb::list& tables, const std::string& since) {
  const std::array<const char*, 3> names{"all", "checkpoint", "publish"};  // HR_SINCE_*
  const auto named = std::find(names.begin(), names.end(), since);
  if (named == names.end()) {
    throw nb::value_error(
        ("since is '" + since + "'; must be 'all', 'checkpoint' or 'publish'").c_str());
  }
  const int rows = static_cast<int>(named - names.begin());
  std::vector<hr_table*> raw;
  for (nb::handle table : tables) raw.push_back(table_of(table));
  std::vector<hr_snapshot*> opened(raw.size());
  run([&] { return hr_snapshots_open(raw.data(), raw.size(), rows, opened.data()); });
  nb::list snapshots;
  for (size_t i = 0; i < raw.size(); ++i) {
    snapshots.append(std::make_unique<PySnapshot>(opened[i], raw[i]));
  }
  return snapshots;
}

std::string lines_digest(Int64s keys, Bytes2 lines, Uint32s clocks, Uint32s counts) {
  const size_t count = keys.shape(0);
  check_length("lines_digest: lines", lines.shape(0), count);
  check_length("lines_digest: clocks", clocks.shape(0), count);
  check_length("lines_digest: counts", counts.shape(0), count);
  uint64_t sums[2];
  run([&] {
    return hr_lines_digest(keys.data(), lines.data(), clocks.data(), counts.data(), count,
                           lines.shape(1), sums);
  });
  return hex_digest(sums);
}

}  // namespace

hr_table* table_of(nb::handle table) {
  if (!nb::isinstance<PyTable>(table)) throw nb::type_error("tables: each must be a Table");
  return nb::cast<const PyTable&>(table).get();
}

void bind_table(nb::module_& m) {
  nb::class_<PySnapshot>(m, "Snapshot", "Rows of a table as they were, while training goes on.")
      .def_prop_ro("rows", &PySnapshot::rows)
      .def_prop_ro("bytes", &PySnapshot::bytes)
      .def_prop_ro("step", &PySnapshot::step)
      .def_prop_ro("state", &PySnapshot::state)
      .def_prop_ro("removed", &PySnapshot::removed)
      .def_prop_ro("copied_bytes", &PySnapshot::copied_bytes)
      .def_prop_ro("short_of_memory", &PySnapshot::short_of_memory)
      .def_prop_ro("waited_seconds", &PySnapshot::waited_seconds)
      .def_prop_ro("lost", &PySnapshot::lost)
      .def_prop_ro("nonfinite_rows", &PySnapshot::nonfinite_rows)
      .def("read", &PySnapshot::read, nb::arg("max_rows"))
      .def("read_into", &PySnapshot::read_into, nb::arg("keys").noconvert(),
           nb::arg("lines").noconvert(), nb::arg("clocks").noconvert(),
           nb::arg("counts").noconvert(), nb::arg("places").noconvert())
      .def("add_unchanged", &PySnapshot::add_unchanged, nb::arg("max_rows"))
      .def_prop_ro("digests_all", &PySnapshot::digests_all)
      .def_prop_ro("digest", &PySnapshot::digest)
      .def("keep", [](PySnapshot& s) { s.close(true); })
      .def("close", [](PySnapshot& s) { s.close(false); });
  nb::class_<PyTable>(m, "Table", "A table of the process-wide registry, reached by its handle.")
      .def(
          "__init__",
          [](PyTable* self, const std::string& handle, const std::string& name, size_t width,
             int64_t vocabulary_size, float default_value, int init_kind, float init_scale,
             uint64_t seed, const nb::dict& optimizer, int weights_type, int state_type,
             const nb::dict& admission, const nb::dict& expiry, const nb::dict& cache,
             int32_t shards, bool hashed, const nb::dict& sharding) {
            hr_table_options o{};
            o.width = width;
            o.vocabulary_size = vocabulary_size;
            o.default_value = default_value;
            o.init_kind = init_kind;
            o.init_scale = init_scale;
            o.seed = seed;
            o.name = name.c_str();
            o.optimizer = to_optimizer(optimizer);
            o.weights_type = weights_type;
            o.state_type = state_type;
            o.admission = to_admission(admission);
            o.expiry = to_expiry(expiry);
            o.cache = to_cache(cache);
            o.shards = shards;
            o.hashed = hashed;
            if (sharding.size() > 0) {
              o.ranks = entry<const char*>(sharding, "ranks");
              o.scheme = entry<int>(sharding, "scheme");
              o.owner = entry<int32_t>(sharding, "owner");
              o.staleness = entry<uint32_t>(sharding, "staleness");
              o.replica_rows = entry<uint64_t>(sharding, "replica_rows");
            }
            new (self) PyTable(handle, o);
          },
          nb::kw_only(), nb::arg("handle"), nb::arg("name"), nb::arg("width"),
          nb::arg("vocabulary_size"), nb::arg("default_value"), nb::arg("init_kind"),
          nb::arg("init_scale"), nb::arg("seed"), nb::arg("optimizer"), nb::arg("weights_type"),
          nb::arg("state_type"), nb::arg("admission"), nb::arg("expiry"), nb::arg("cache"),
          nb::arg("shards"), nb::arg("hashed"), nb::arg("sharding") = nb::dict())
      .def_prop_ro("handle", &PyTable::handle)
      .def_prop_ro("width", &PyTable::width)
      .def_prop_ro("columns", &PyTable::columns)
      .def("owns", &PyTable::owns, nb::arg("keys").noconvert())
      .def_prop_ro("line_bytes", &PyTable::line_bytes)
      .def_prop_ro("layout", &PyTable::layout)
      .def_prop_ro("default_value",
                   [](const PyTable& t) { return hr_table_default_value(t.get()); })
      .def_prop_ro(
          "size", [](const PyTable& t) { return hr_table_size(t.get()); }, Unlocked())
      .def_prop_ro(
          "bytes", [](const PyTable& t) { return hr_table_bytes(t.get()); }, Unlocked())
      .def_prop_rw(
          "step", [](const PyTable& t) { return hr_table_step(t.get()); },
          [](const PyTable& t, uint32_t step) { hr_table_set_step(t.get(), step); }, Unlocked())
      .def_prop_ro("shard_count", [](const PyTable& t) { return hr_table_shard_count(t.get()); })
      .def("lookup", &PyTable::lookup, nb::arg("keys").noconvert(), nb::arg("insert") = false)
      .def("update", &PyTable::update, nb::arg("keys").noconvert(), nb::arg("gradients"),
           nb::arg("learning_rate") = nb::none())
      .def("export_rows", &PyTable::export_rows, nb::arg("cursor"), nb::arg("max_rows"))
      .def("import_rows", &PyTable::import_rows, nb::arg("keys").noconvert(),
           nb::arg("lines").noconvert(), nb::arg("clocks").noconvert(),
           nb::arg("counts").noconvert(), nb::arg("places").noconvert() = nb::none())
      .def("remove_rows", &PyTable::remove_rows, nb::arg("keys").noconvert())
      .def("read_rows", &PyTable::read_rows, nb::arg("keys").noconvert())
      .def("has_rows", &PyTable::has_rows, nb::arg("keys").noconvert())
      .def("bury_rows", &PyTable::bury_rows, nb::arg("keys").noconvert())
      .def("digest", &PyTable::digest, nb::arg("weights_only") = false)
      .def("statistics", &PyTable::statistics)
      .def("begin_publishing", &PyTable::begin_publishing, nb::arg("since").none())
      .def("mark_for_publishing", &PyTable::mark_for_publishing, nb::arg("keys").noconvert())
      .def_prop_ro(
          "marked_rows", [](const PyTable& t) { return hr_table_marked_rows(t.get()); }, Unlocked())
      .def("tombstones", &PyTable::tombstones)
      .def(
          "forget_tombstones",
          [](const PyTable& t, uint32_t step) {
            run([&] { return hr_table_forget_tombstones(t.get(), step); });
          },
          nb::arg("up_to_step"))
      .def("keep_tombstones",
           [](const PyTable& t) { run([&] { return hr_table_keep_tombstones(t.get()); }); })
      .def_prop_ro(
          "forgotten_step", [](const PyTable& t) { return hr_table_forgotten_step(t.get()); },
          Unlocked())
      .def("state", &PyTable::state)
      .def("set_state", &PyTable::set_state, nb::arg("state"))
      .def("merge_states", &PyTable::merge_states, nb::arg("states"), nb::arg("counts"))
      .def("prefetch", &PyTable::prefetch, nb::arg("keys").noconvert())
      .def("wait_for_prefetch",
           [](const PyTable& t) { run([&] { return hr_table_wait_for_prefetch(t.get()); }); })
      .def("warm_up", &PyTable::warm_up, nb::arg("keys").noconvert(), nb::arg("counts").noconvert(),
           nb::arg("share"))
      .def("clear", [](const PyTable& t) { run([&] { return hr_table_clear(t.get()); }); });
  m.def("open_snapshots", &open_snapshots, nb::arg("tables"), nb::arg("since"),
        "Returns a Snapshot of each table; their copies of rows share one budget of memory.");
  m.def("lines_digest", &lines_digest, nb::arg("keys").noconvert(), nb::arg("lines").noconvert(),
        nb::arg("clocks").noconvert(), nb::arg("counts").noconvert(),
        "Returns the digest of rows, as Table.digest of a table with these rows alone.");
  m.def("rank_prefetch", &rank_prefetch, nb::arg("tables"), nb::arg("features"),
        "Prefetches a batch of tables on ranks. features: (name, keys, row_splits or None, "
        "weights or None, samples, combiner, number of the table) of each.");
  m.def(
      "push_all",
      [](const nb::list& tables, std::optional<std::vector<float>> learning_rates) {
        std::vector<hr_table*> raw;
        for (nb::handle table : tables) raw.push_back(nb::cast<PyTable&>(table).get());
        run([&] {
          return hr_tables_push_all(raw.data(), raw.size(),
                                    learning_rates ? learning_rates->data() : nullptr);
        });
      },
      nb::arg("tables"), nb::arg("learning_rates") = nb::none(),
      "Sends the owners of rows all pending gradients of their replicas; all ranks call it "
      "together.");
  m.def(
      "drop_table",
      [](const std::string& handle) {
        nb::gil_scoped_release release;
        hr_table_drop(handle.c_str());
      },
      nb::arg("handle"), "Takes a table out of the registry.");
}
