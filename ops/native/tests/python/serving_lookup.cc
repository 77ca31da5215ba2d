#include "tests/python/serving_lookup.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

#include "core/abi/serving.h"
#include "core/base/threads.h"
#include "python/row_reader.h"

namespace {

using hotrow::Threads;

// (name, dim, row type, default value, rows).
using TableFacts = std::tuple<std::string, size_t, std::string, float, uint64_t>;

class MemoryReader : public RowReader {
 public:
  explicit MemoryReader(const std::vector<TableFacts>& facts) {
    std::vector<hr_stored_table> tables;
    for (const auto& [name, width, type, default_value, rows] : facts) {
      tables.push_back({name.c_str(), width, type.c_str(), 0, default_value, rows});
    }
    hr_reader* raw = nullptr;
    check(hr_memory_reader_create(tables.data(), tables.size(), &raw));
    take(raw);
  }

  void put(size_t table, Int64s keys, Bytes2 rows, std::optional<Uint64s> versions) {
    const auto reader = open();
    check_length("put: rows", rows.shape(0), keys.shape(0));
    check_length("put: bytes of the rows", rows.shape(1), shape(table).row_bytes);
    if (versions) check_length("put: versions", versions->shape(0), keys.shape(0));
    run([&] {
      return hr_memory_reader_put(reader.get(), table, keys.data(), keys.shape(0), rows.data(),
                                  versions ? versions->data() : nullptr);
    });
  }
};

class HotRows {
 public:
  HotRows(const RowReader& reader, uint64_t rows, uint64_t bytes, int policy) {
    for (size_t t = 0; t < nb::len(reader.tables()); ++t) {
      row_bytes_.push_back(reader.shape(t).row_bytes);
    }
    hr_hot_rows* raw = nullptr;
    const auto held = reader.open();
    check(hr_hot_rows_create(held.get(), rows, bytes, policy, &raw));
    cache_.reset(raw, hr_hot_rows_release);
  }

  hr_hot_rows* get() const { return cache_.get(); }

  void update(size_t table, Int64s keys, Bytes2 rows, Uint64s versions) {
    if (table >= row_bytes_.size()) throw nb::index_error("no such table");
    check_length("update: rows", rows.shape(0), keys.shape(0));
    check_length("update: bytes of the rows", rows.shape(1), row_bytes_[table]);
    check_length("update: versions", versions.shape(0), keys.shape(0));
    run([&] {
      return hr_hot_rows_update(get(), table, keys.data(), keys.shape(0), rows.data(),
                                versions.data());
    });
  }
  void invalidate_shard(size_t shard, size_t shards) {
    run([&] { return hr_hot_rows_invalidate_shard(get(), shard, shards); });
  }
  void clear() {
    run([&] { return hr_hot_rows_clear(get()); });
  }
  size_t slots() const { return sizes().first; }
  size_t bytes() const { return sizes().second; }
  nb::dict counts(size_t table) const {
    hr_hot_counts counts;
    check(hr_hot_rows_count(get(), table, &counts));
    nb::dict all;
    all["hits"] = counts.hits;
    all["misses"] = counts.misses;
    all["inserted"] = counts.inserted;
    all["evicted"] = counts.evicted;
    all["refused"] = counts.refused;
    all["updated"] = counts.updated;
    all["removed"] = counts.removed;
    all["rows"] = counts.rows;
    return all;
  }

 private:
  std::pair<size_t, size_t> sizes() const {
    size_t slots, bytes;
    hr_hot_rows_size(get(), &slots, &bytes);
    return {slots, bytes};
  }
  std::shared_ptr<hr_hot_rows> cache_;
  std::vector<size_t> row_bytes_;
};

// The hottest rows of a cache, in the memory of a GPU.
class GpuRows {
 public:
  GpuRows(const HotRows& below, int gpu, uint64_t bytes, int policy) : below_(below) {
    hr_gpu_rows* raw = nullptr;
    run([&] { return hr_gpu_rows_create(below.get(), gpu, bytes, policy, &raw); });
    rows_.reset(raw, hr_gpu_rows_release);
  }
  void fill(size_t table, Int64s keys) {
    run([&] { return hr_gpu_rows_fill(get(), table, keys.data(), keys.shape(0)); });
  }
  uint64_t size() const {
    uint64_t size = 0;
    run([&] { return hr_gpu_rows_size(get(), &size); });
    return size;
  }
  hr_gpu_rows* get() const { return rows_.get(); }

 private:
  const HotRows below_;
  std::shared_ptr<hr_gpu_rows> rows_;
};

class ServingLookup {
 public:
  ServingLookup(const RowReader& reader, const HotRows* cache, int on_store_failure,
                bool share_fetches, size_t threads) {
    for (size_t t = 0; t < nb::len(reader.tables()); ++t) {
      widths_.push_back(reader.shape(t).width);
    }
    hr_lookup* raw = nullptr;
    const auto held = reader.open();
    check(hr_lookup_create(held.get(), cache == nullptr ? nullptr : cache->get(), on_store_failure,
                           share_fetches, &raw));
    lookup_.reset(raw, hr_lookup_release);
    if (threads > 1) threads_ = std::make_unique<Threads>(threads);
  }

  // (table, keys, row splits, weights, combiner).
  using Asked = std::tuple<size_t, Int64s, std::optional<Int64s>, std::optional<Floats>, int>;

  // Returns (values of each feature, counts of keys, why keys failed or "").
  nb::object lookup(const std::vector<Asked>& asked, double timeout_seconds) const {
    std::vector<hr_feature> features;
    std::vector<float*> outputs;
    nb::list pooled;
    for (const Asked& one : asked) {
      const hr_feature feature = feature_of(one);
      float* rows;
      pooled.append(make_array<float>(
          {feature.combiner == 0 ? feature.key_count : feature.samples, widths_[feature.table]},
          &rows));
      features.push_back(feature);
      outputs.push_back(rows);
    }
    hr_lookup_report report;
    run([&] {
      return hr_lookup_run(lookup_.get(), features.data(), features.size(), outputs.data(),
                           timeout_seconds, threads_ == nullptr ? nullptr : threads_->executor(),
                           &report);
    });
    return nb::make_tuple(pooled, counted(report), report.failure == 0 ? "" : hr_last_error());
  }

  // outputs: addresses on the GPU of `rows`, of (B, D) or (N, D) floats. Returns counts of keys.
  nb::dict lookup_on_gpu(const std::vector<Asked>& asked, const GpuRows& rows,
                         const std::vector<uintptr_t>& outputs, uintptr_t stream,
                         double timeout_seconds) const {
    check_length("lookup: outputs", outputs.size(), asked.size());
    std::vector<hr_feature> features;
    std::vector<float*> pooled;
    for (size_t f = 0; f < asked.size(); ++f) {
      features.push_back(feature_of(asked[f]));
      pooled.push_back(reinterpret_cast<float*>(outputs[f]));
    }
    const hr_stream on = {reinterpret_cast<void*>(stream)};
    hr_lookup_report report;
    run([&] {
      return hr_lookup_run_on_gpu(lookup_.get(), rows.get(), &on, features.data(), features.size(),
                                  pooled.data(), timeout_seconds,
                                  threads_ == nullptr ? nullptr : threads_->executor(), &report);
    });
    return counted(report);
  }

  nb::dict counts(size_t table) const {
    hr_lookup_counts counts;
    check(hr_lookup_count(lookup_.get(), table, &counts));
    nb::dict all;
    all["fetched"] = counts.fetched;
    all["unknown"] = counts.unknown;
    all["failed"] = counts.failed;
    all["defaulted"] = counts.defaulted;
    return all;
  }
  uint64_t waited() const { return hr_lookup_waited(lookup_.get()); }

 private:
  hr_feature feature_of(const Asked& asked) const {
    const auto& [table, keys, splits, weights, combiner] = asked;
    if (table >= widths_.size()) throw nb::index_error("no such table");
    if (splits && splits->shape(0) == 0) throw nb::value_error("row_splits: length 0, at least 1");
    if (weights) check_length("lookup: weights", weights->shape(0), keys.shape(0));
    hr_feature feature = {};
    feature.name = "of a lookup";
    feature.keys = keys.data();
    feature.key_count = keys.shape(0);
    feature.samples = splits ? splits->shape(0) - 1 : keys.shape(0);
    feature.row_splits = splits ? splits->data() : nullptr;
    feature.weights = weights ? weights->data() : nullptr;
    feature.combiner = combiner;
    feature.table = table;
    return feature;
  }
  static nb::dict counted(const hr_lookup_report& report) {
    nb::dict met;
    met["keys"] = report.keys;
    met["hits"] = report.hits;
    met["fetched"] = report.fetched;
    met["unknown"] = report.unknown;
    met["failed"] = report.failed;
    return met;
  }

  std::shared_ptr<hr_lookup> lookup_;
  std::vector<size_t> widths_;
  std::unique_ptr<Threads> threads_;
};

}  // namespace

void bind_serving_lookup(nb::module_& m) {
  nb::class_<MemoryReader, RowReader>(m, "MemoryReader", "Rows of a generation in memory.")
      .def(nb::init<const std::vector<TableFacts>&>(), nb::arg("tables"))
      .def("put", &MemoryReader::put, nb::arg("table"), nb::arg("keys").noconvert(),
           nb::arg("rows").noconvert(), nb::arg("versions").none() = nb::none());
  nb::class_<HotRows>(m, "HotRows", "A bounded cache of the rows of a reader.")
      .def(nb::init<const RowReader&, uint64_t, uint64_t, int>(), nb::arg("reader"), nb::kw_only(),
           nb::arg("rows") = 0, nb::arg("bytes") = 0, nb::arg("policy") = 0)
      .def("update", &HotRows::update, nb::arg("table"), nb::arg("keys").noconvert(),
           nb::arg("rows").noconvert(), nb::arg("versions").noconvert())
      .def("invalidate_shard", &HotRows::invalidate_shard, nb::arg("shard"), nb::arg("shards"))
      .def("clear", &HotRows::clear)
      .def_prop_ro("slots", &HotRows::slots)
      .def_prop_ro("bytes", &HotRows::bytes)
      .def("counts", &HotRows::counts, nb::arg("table"));
  nb::class_<GpuRows>(m, "GpuRows", "The hottest rows of a cache, in the memory of a GPU.")
      .def(nb::init<const HotRows&, int, uint64_t, int>(), nb::arg("below"), nb::arg("gpu"),
           nb::arg("bytes"), nb::kw_only(), nb::arg("policy") = 0)
      .def("fill", &GpuRows::fill, nb::arg("table"), nb::arg("keys").noconvert())
      .def_prop_ro("size", &GpuRows::size);
  nb::class_<ServingLookup>(m, "ServingLookup", "Looks up features of the tables of a reader.")
      .def(nb::init<const RowReader&, const HotRows*, int, bool, size_t>(), nb::arg("reader"),
           nb::arg("cache").none() = nb::none(), nb::kw_only(), nb::arg("on_store_failure") = 0,
           nb::arg("share_fetches") = true, nb::arg("threads") = 1)
      .def("lookup", &ServingLookup::lookup, nb::arg("features"), nb::arg("timeout_seconds") = 10.0)
      .def("lookup_on_gpu", &ServingLookup::lookup_on_gpu, nb::arg("features"), nb::arg("rows"),
           nb::arg("outputs"), nb::arg("stream"), nb::arg("timeout_seconds") = 10.0)
      .def("counts", &ServingLookup::counts, nb::arg("table"))
      .def_prop_ro("waited", &ServingLookup::waited);
}
