// Steps of tables on a GPU: arrays by DLPack or CUDA's array interface, the stream as an integer.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

#include "core/base/threads.h"
#include "python/binding.h"

namespace {

using hotrow::Threads;

using DeviceInt64s = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cuda>;
using DeviceFloats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cuda>;
using DeviceFloats2 = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cuda>;
using DeviceOut2 = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cuda>;

// The input of a feature. It holds its arrays.
struct DeviceFeature {
  size_t table;
  DeviceInt64s keys;
  std::optional<DeviceInt64s> row_splits;
  std::optional<DeviceFloats> weights;
  int combiner;

  hr_feature get() const {
    hr_feature feature{};
    feature.name = "";
    feature.keys = keys.data();
    feature.key_count = keys.shape(0);
    feature.samples = row_splits ? row_splits->shape(0) - 1 : keys.shape(0);
    if (row_splits) feature.row_splits = row_splits->data();
    if (weights) feature.weights = weights->data();
    feature.combiner = combiner;
    feature.table = table;
    return feature;
  }
  size_t outputs() const {
    const hr_feature feature = get();
    return combiner == 0 ? feature.key_count : feature.samples;
  }
};

// The tables and features of a call.
class DeviceCall {
 public:
  DeviceCall(const nb::list& tables, const std::vector<const DeviceFeature*>& features,
             const Threads* threads) {
    for (nb::handle table : tables) tables_.push_back(table_of(table));
    if (tables_.empty()) throw nb::value_error("a call needs at least one table");
    for (hr_table* table : tables_) {
      hr_layout layout;
      hr_table_layout(table, &layout);
      widths_.push_back(layout.width);
    }
    for (const DeviceFeature* feature : features) {
      if (feature->table >= tables_.size()) {
        throw nb::index_error(("feature of table " + std::to_string(feature->table) + "; " +
                               std::to_string(tables_.size()) + " tables are given")
                                  .c_str());
      }
      features_.push_back(feature->get());
    }
    call_ = {tables_.data(),   widths_.data(),
             tables_.size(),   features_.data(),
             features_.size(), threads == nullptr ? nullptr : threads->executor()};
  }
  DeviceCall(const DeviceCall&) = delete;
  const hr_layer_call& get() const { return call_; }

  // Fails with ValueError unless arrays[f] is (B_f, D).
  template <typename Array>
  auto pointers(const char* what, const std::vector<const DeviceFeature*>& features,
                const std::vector<Array>& arrays) const {
    check_length(what, arrays.size(), features.size());
    std::vector<decltype(arrays[0].data())> all;
    for (size_t f = 0; f < arrays.size(); ++f) {
      check_length(what, arrays[f].shape(0), features[f]->outputs());
      check_length(what, arrays[f].shape(1), widths_[features[f]->table]);
      all.push_back(arrays[f].data());
    }
    return all;
  }
  size_t tables() const { return tables_.size(); }

 private:
  std::vector<hr_table*> tables_;
  std::vector<size_t> widths_;
  std::vector<hr_feature> features_;
  hr_layer_call call_{};
};

void check_slot(size_t slot) {
  if (slot < HR_SLOTS) return;
  throw nb::index_error(
      ("slot " + std::to_string(slot) + "; must be below " + std::to_string(HR_SLOTS)).c_str());
}

nb::tuple forward(const nb::list& tables, const std::vector<const DeviceFeature*>& features,
                  const std::vector<DeviceOut2>& pooled, bool insert, uintptr_t stream,
                  const Threads* threads) {
  const DeviceCall call(tables, features, threads);
  const auto out = call.pointers("pooled", features, pooled);
  int64_t ticket = 0;
  size_t unknown = 0;
  const hr_stream on = {reinterpret_cast<void*>(stream)};
  run([&] { return hr_forward(&call.get(), insert, out.data(), &ticket, &unknown, &on); });
  return nb::make_tuple(ticket, unknown);
}

void backward(const nb::list& tables, const std::vector<const DeviceFeature*>& features,
              const std::vector<DeviceFloats2>& gradients, int64_t ticket,
              const std::optional<std::vector<float>>& learning_rates, float global_clip_norm,
              int what, size_t slot, uintptr_t stream, const Threads* threads) {
  const DeviceCall call(tables, features, threads);
  const auto in = call.pointers("gradients", features, gradients);
  check_slot(slot);
  if (learning_rates) check_length("learning_rates", learning_rates->size(), call.tables());
  const hr_backward_options options = {
      what, slot, ticket, learning_rates ? learning_rates->data() : nullptr, global_clip_norm};
  const hr_stream on = {reinterpret_cast<void*>(stream)};
  run([&] { return hr_backward(&call.get(), in.data(), &options, &on); });
}

void commit(const nb::list& tables, const Floats& commit_token,
            const std::optional<std::vector<float>>& learning_rates, float global_clip_norm,
            uintptr_t stream, const Threads* threads) {
  std::vector<hr_table*> all;
  for (nb::handle table : tables) all.push_back(table_of(table));
  if (all.empty()) throw nb::value_error("a commit needs at least one table");
  check_length("commit_token", commit_token.shape(0), HR_SLOTS);
  if (learning_rates) check_length("learning_rates", learning_rates->size(), all.size());
  const hr_stream on = {reinterpret_cast<void*>(stream)};
  run([&] {
    return hr_commit(all.data(), all.size(), commit_token.data(),
                     learning_rates ? learning_rates->data() : nullptr, global_clip_norm,
                     threads == nullptr ? nullptr : threads->executor(), &on);
  });
}

}  // namespace

void bind_device(nb::module_& m) {
  nb::class_<Threads>(m, "Threads", "Threads for the host's part of a step.")
      .def(
          "__init__",
          [](Threads* self, size_t count) {
            if (count == 0 || count > 1024) {
              throw nb::value_error(
                  ("count is " + std::to_string(count) + "; must be in [1, 1024]").c_str());
            }
            new (self) Threads(count);
          },
          nb::arg("count"));
  nb::class_<DeviceFeature>(m, "DeviceFeature", "The input of a feature, on a GPU.")
      .def(
          "__init__",
          [](DeviceFeature* self, DeviceInt64s keys, size_t table,
             std::optional<DeviceInt64s> row_splits, std::optional<DeviceFloats> weights,
             int combiner) {
            if (row_splits && row_splits->shape(0) == 0) {
              throw nb::value_error("row_splits: length 0, must be at least 1");
            }
            if (weights) check_length("weights", weights->shape(0), keys.shape(0));
            new (self) DeviceFeature{table, std::move(keys), std::move(row_splits),
                                     std::move(weights), combiner};
          },
          nb::arg("keys").noconvert(), nb::kw_only(), nb::arg("table") = 0,
          nb::arg("row_splits").noconvert() = nb::none(),
          nb::arg("weights").noconvert() = nb::none(), nb::arg("combiner") = 0);
  m.def("device_forward", &forward, nb::arg("tables"), nb::arg("features"),
        nb::arg("pooled").noconvert(), nb::kw_only(), nb::arg("insert") = true,
        nb::arg("stream") = 0, nb::arg("threads") = nb::none(),
        "Writes pooled rows of tables on a GPU; returns a ticket and how many keys are unknown.");
  m.def(
      "device_backward", &backward, nb::arg("tables"), nb::arg("features"),
      nb::arg("gradients").noconvert(), nb::kw_only(), nb::arg("ticket") = 0,
      nb::arg("learning_rates") = nb::none(), nb::arg("global_clip_norm") = 0.0f,
      nb::arg("what") = 2, nb::arg("slot") = 0, nb::arg("stream") = 0,
      nb::arg("threads") = nb::none(),
      "Sums gradients by row, on a GPU; what 0: they wait in the slot, 1 and 2: they are applied.");
  m.def("device_commit", &commit, nb::arg("tables"), nb::arg("commit_token"), nb::kw_only(),
        nb::arg("learning_rates") = nb::none(), nb::arg("global_clip_norm") = 0.0f,
        nb::arg("stream") = 0, nb::arg("threads") = nb::none(),
        "Ends a step of tables on a GPU: gradients that wait are applied by the commit_token' "
        "factors.");
}
