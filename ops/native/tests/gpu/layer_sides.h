// The same inputs for tables in memory and for tables with their device tier on a GPU, and a
// comparison of every bit.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/gpu/step/layer.h"
#include "tests/gpu/device_array.h"
#include "tests/one_table.h"

namespace hotrow {

class Stream {
 public:
  Stream() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  DeviceStream get() const { return stream_; }
  void wait() const { must(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

// A table of a case.
struct Kind {
  size_t width = 5;
  OptimizerKind optimizer = OptimizerKind::kAdagrad;
  size_t cache_rows = 64;
  CachePolicy policy = CachePolicy::kLfu;
  RowType type = RowType::kFloat32;
  bool expiry = false, admission = false;
  int32_t shards = 1;
  size_t piece_bytes = 3000;  // several pieces a window
  int64_t vocabulary_size = -1;
  float clip_row_norm = 0.0f, l2 = 0.0f;
};

inline TableOptions options_of(const Kind& kind, bool on_device) {
  TableOptions options;
  options.width = kind.width;
  options.init.kind = InitKind::kUniform;
  options.init.scale = 0.1f;
  options.init.table = kind.width;
  options.optimizer.kind = kind.optimizer;
  options.optimizer.clip_row_norm = kind.clip_row_norm;
  options.optimizer.l2 = kind.l2;
  options.weights = options.state = kind.type;
  options.default_value = 0.25f;
  options.vocabulary_size = kind.vocabulary_size;
  if (kind.expiry) {
    options.expiry.after_steps = 6;
    options.expiry.rare_count = 3;
    options.expiry.rare_after_steps = 3;
    options.expiry.sweep_steps = 4;
  }
  if (kind.admission) {
    options.admission.kind = AdmissionKind::kCounter;
    options.admission.occurrences = 2;
  }
  if (on_device) {
    options.cache.rows = kind.cache_rows;
    options.cache.policy = kind.policy;
    options.cache.device = CacheDevice::kGpu;
    options.cache.piece_bytes = kind.piece_bytes;
  }
  return options;
}

struct Tables {
  Tables(const std::vector<Kind>& kinds, bool on_device) {
    for (const Kind& kind : kinds) {
      owned.push_back(std::make_unique<Table>("t" + std::to_string(owned.size()),
                                              options_of(kind, on_device), kind.shards, false));
      all.push_back(owned.back().get());
    }
  }
  std::vector<std::unique_ptr<Table>> owned;
  std::vector<Table*> all;
};

// The input of a feature, and its gradients.
struct Input {
  size_t table = 0;
  Combiner combiner = Combiner::kNone;
  std::vector<int64_t> keys;
  std::vector<int64_t> splits;
  std::vector<float> weights;
  std::vector<float> gradients;
  size_t samples = 0;
};

inline float random_float(std::mt19937_64& random) {
  return static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
}

// combiners: where they come from; null: `random`.
inline Input input_of(std::mt19937_64& random, const Tables& tables, size_t table, size_t samples,
                      size_t rows, std::mt19937_64* combiners) {
  Input input;
  input.table = table;
  input.samples = samples;
  input.combiner = static_cast<Combiner>((combiners == nullptr ? random : *combiners)() % 4);
  const bool ragged = input.combiner != Combiner::kNone && random() % 2 == 0;
  size_t keys = samples;
  if (ragged) {
    input.splits.push_back(0);
    for (size_t b = 0; b < samples; ++b) {
      input.splits.push_back(input.splits.back() + static_cast<int64_t>(random() % 4));
    }
    keys = static_cast<size_t>(input.splits.back());
  }
  for (size_t i = 0; i < keys; ++i) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    input.keys.push_back(static_cast<int64_t>(std::pow(u, 4.0) * static_cast<double>(rows)) - 7);
  }
  if (input.combiner != Combiner::kNone && random() % 2 == 0) {
    for (size_t i = 0; i < keys; ++i) input.weights.push_back(random_float(random) + 1.5f);
  }
  const size_t outputs = input.combiner == Combiner::kNone ? keys : samples;
  const Table& of = *tables.all[table];
  const size_t width = of.sharding().ranks == nullptr ? of.width() : of.sharding().width;
  for (size_t i = 0; i < outputs * width; ++i) {
    input.gradients.push_back(random_float(random));
  }
  return input;
}

// Two features of the first table, one of each other.
inline std::vector<Input> inputs_of(std::mt19937_64& random, const Tables& tables, size_t samples,
                                    size_t rows = 3000, std::mt19937_64* combiners = nullptr) {
  std::vector<Input> inputs;
  for (size_t t = tables.all.size(); t-- > 0;) {
    inputs.push_back(input_of(random, tables, t, samples, rows, combiners));
  }
  inputs.push_back(input_of(random, tables, 0, samples, rows, combiners));
  return inputs;
}

// Makes a few gradients NaN or infinite: their rows must stay as they were.
inline std::vector<Input> spoiled(std::mt19937_64& random, std::vector<Input> inputs) {
  for (Input& input : inputs) {
    for (float& value : input.gradients) {
      if (random() % 512 == 0) value = random() % 2 == 0 ? NAN : INFINITY;
    }
  }
  return inputs;
}

using Outputs = std::vector<std::vector<float>>;

class HostSide {
 public:
  HostSide(const Tables& tables, const std::vector<Input>& inputs, const Executor& executor) {
    call_.tables = tables.all;
    call_.executor = executor;
    for (const Input& input : inputs) {
      Feature feature;
      feature.name = "f";
      feature.keys = input.keys.data();
      feature.segments = {input.combiner, input.keys.size(),
                          input.splits.empty() ? input.keys.size() : input.samples,
                          input.splits.empty() ? nullptr : input.splits.data(),
                          input.weights.empty() ? nullptr : input.weights.data()};
      call_.features.push_back(feature);
      call_.table_of.push_back(input.table);
      outputs_.emplace_back(input.gradients.size());
      gradients_.push_back(input.gradients.data());
    }
    for (auto& output : outputs_) pooled_.push_back(output.data());
  }
  int64_t forward(bool insert) { return hotrow::forward(call_, insert, pooled_, &missing); }
  void backward(const BackwardOptions& options) { hotrow::backward(call_, gradients_, options); }
  Outputs outputs() const { return outputs_; }
  size_t missing = 0;

 private:
  LayerCall call_;
  Outputs outputs_;
  std::vector<float*> pooled_;
  std::vector<const float*> gradients_;
};

class DeviceSide {
 public:
  DeviceSide(const Tables& tables, const std::vector<Input>& inputs, const Executor& executor,
             const Stream& stream)
      : inputs_(&inputs), stream_(&stream) {
    call_.tables = tables.all;
    call_.executor = executor;
    for (const Input& input : inputs) {
      Feature feature;
      feature.name = "f";
      feature.keys = put(input.keys);
      feature.segments = {input.combiner, input.keys.size(),
                          input.splits.empty() ? input.keys.size() : input.samples,
                          input.splits.empty() ? nullptr : put(input.splits),
                          input.weights.empty() ? nullptr : put(input.weights)};
      call_.features.push_back(feature);
      call_.table_of.push_back(input.table);
      outputs_.push_back(std::make_unique<DeviceArray<float>>(input.gradients.size()));
      pooled_.push_back(outputs_.back()->data());
      gradients_.push_back(put(input.gradients));
    }
  }
  ~DeviceSide() { stream_->wait(); }
  int64_t forward(bool insert) {
    return device_forward(call_, insert, pooled_, &missing, stream_->get());
  }
  void backward(const BackwardOptions& options) {
    device_backward(call_, gradients_, options, stream_->get());
  }
  Outputs outputs() const {
    stream_->wait();
    Outputs values;
    for (const auto& output : outputs_) values.push_back(output->read());
    return values;
  }
  LayerCall& call() { return call_; }
  // The same call with its features in the host's memory; while the inputs live.
  LayerCall call_in_memory() const {
    LayerCall call = call_;
    for (size_t f = 0; f < call.features.size(); ++f) {
      const Input& input = (*inputs_)[f];
      Segments& segments = call.features[f].segments;
      call.features[f].keys = input.keys.data();
      if (segments.row_splits != nullptr) segments.row_splits = input.splits.data();
      if (segments.weights != nullptr) segments.weights = input.weights.data();
    }
    return call;
  }
  size_t missing = 0;

 private:
  template <typename T>
  const T* put(const std::vector<T>& values) {
    auto array = std::make_shared<DeviceArray<T>>(values);
    kept_.push_back(array);
    return array->data();
  }
  LayerCall call_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<std::unique_ptr<DeviceArray<float>>> outputs_;
  std::vector<float*> pooled_;
  std::vector<const float*> gradients_;
  const std::vector<Input>* inputs_;
  const Stream* stream_;
};

inline bool same_bits(const Outputs& a, const Outputs& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    if (!a[i].empty() && std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

inline uint64_t lookups_of(const Table& table) { return table.statistics().lookups; }

inline void check_same(const Tables& plain, const Tables& tiered) {
  for (size_t t = 0; t < plain.all.size(); ++t) {
    CAPTURE(t);
    const Table &a = *plain.all[t], &b = *tiered.all[t];
    REQUIRE(exported(a, 1000) == exported(b, 1000));
    uint64_t expected[2], digest[2];
    a.digest(false, expected);
    b.digest(false, digest);
    REQUIRE((expected[0] == digest[0] && expected[1] == digest[1]));
    REQUIRE(a.state() == b.state());
    REQUIRE(lookups_of(a) == lookups_of(b));
    REQUIRE(a.step() == b.step());
  }
}

inline BackwardOptions now(int64_t ticket) {
  BackwardOptions options;
  options.what = Backward::kUpdate;
  options.ticket = ticket;
  return options;
}

}  // namespace hotrow
