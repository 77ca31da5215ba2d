// The fingerprint of a batch on the device against the CPU's.
#include "core/gpu/kernels/fingerprint.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "core/kernels/feature_fingerprint.h"
#include "tests/gpu/device_array.h"

namespace hotrow {
namespace {

// Features in the host's memory.
struct Values {
  std::vector<int64_t> keys, splits;
  std::vector<float> weights;

  Feature feature() const {
    Feature feature;
    feature.keys = keys.data();
    feature.segments.combiner = Combiner::kSum;
    feature.segments.keys = keys.size();
    feature.segments.samples = splits.empty() ? keys.size() : splits.size() - 1;
    feature.segments.row_splits = splits.empty() ? nullptr : splits.data();
    feature.segments.weights = weights.empty() ? nullptr : weights.data();
    return feature;
  }
};

uint64_t on_device(const std::vector<Values>& all) {
  std::vector<std::unique_ptr<DeviceArray<int64_t>>> integers;
  std::vector<std::unique_ptr<DeviceArray<float>>> floats;
  std::vector<Feature> features;
  for (const Values& values : all) {
    features.push_back(values.feature());
    Feature& feature = features.back();
    integers.push_back(std::make_unique<DeviceArray<int64_t>>(values.keys));
    feature.keys = integers.back()->data();
    if (!values.splits.empty()) {
      integers.push_back(std::make_unique<DeviceArray<int64_t>>(values.splits));
      feature.segments.row_splits = integers.back()->data();
    }
    if (!values.weights.empty()) {
      floats.push_back(std::make_unique<DeviceArray<float>>(values.weights));
      feature.segments.weights = floats.back()->data();
    }
  }
  const DeviceArray<uint64_t> out(1);
  const Scratch scratch(device_fingerprint_scratch(features.size()));
  device_fingerprint(features.data(), features.size(), out.data(), scratch.data(), scratch.bytes(),
                     kStream);
  return out.read()[0];
}

uint64_t on_host(const std::vector<Values>& all) {
  std::vector<Feature> features;
  for (const Values& values : all) features.push_back(values.feature());
  return fingerprint_of(features);
}

}  // namespace

TEST_CASE("device fingerprint: that of the CPU, and another for every other batch") {
  std::mt19937_64 random(2);
  std::vector<Values> all(4);
  for (size_t i = 0; i < 5000; ++i) all[0].keys.push_back(static_cast<int64_t>(random()));
  all[1].keys = {5, 5, -7};
  all[1].splits = {0, 2, 2, 3};
  all[2].keys = {5, 5, -7};
  all[2].weights = {0.5f, -0.0f, NAN};
  const uint64_t expected = on_host(all);
  CHECK(on_device(all) == expected);
  CHECK(on_device({}) == on_host({}));
  const auto changed = [&](auto&& change) {
    std::vector<Values> other = all;
    change(&other);
    CHECK(on_host(other) != expected);
    CHECK(on_device(other) == on_host(other));
  };
  changed([](auto* v) { (*v)[0].keys[4999] ^= 1; });
  changed([](auto* v) { std::swap((*v)[0].keys[0], (*v)[0].keys[1]); });
  changed([](auto* v) { std::swap((*v)[0], (*v)[3]); });
  changed([](auto* v) { (*v)[1].splits[1] = 1; });
  changed([](auto* v) { (*v)[2].weights[1] = 0.0f; });
}

}  // namespace hotrow
