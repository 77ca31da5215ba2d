// A lookup whose outputs are on a GPU, for tests.
#pragma once

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/gpu/kernels/runtime.h"
#include "core/serving/device_lookup.h"
#include "tests/gpu/device_array.h"
#include "tests/serving/random_request.h"

namespace hotrow {

inline DeviceRowsOptions on_gpu_0(uint64_t bytes, CachePolicy policy = CachePolicy::kLfu) {
  DeviceRowsOptions options;
  options.gpu = 0;
  options.bytes = bytes;
  options.policy = policy;
  return options;
}

// Outputs on the GPU, by feature.
class GpuOutputs {
 public:
  explicit GpuOutputs(const std::vector<std::vector<float>>& sizes) {
    for (const std::vector<float>& output : sizes) {
      arrays_.push_back(std::make_unique<DeviceArray<float>>(output.size()));
      pointers_.push_back(arrays_.back()->data());
    }
  }
  float* const* pointers() const { return pointers_.data(); }
  void read(std::vector<std::vector<float>>* outputs) const {
    for (size_t f = 0; f < outputs->size(); ++f) (*outputs)[f] = arrays_[f]->read();
  }

 private:
  std::vector<std::unique_ptr<DeviceArray<float>>> arrays_;
  std::vector<float*> pointers_;
};

// Runs a lookup on the stream and copies its outputs to `outputs`, by feature.
inline LookupReport run_on_gpu(const ServingLookup& lookup, DeviceRows& rows, DeviceStream stream,
                               const std::vector<ServingFeature>& features,
                               std::vector<std::vector<float>>* outputs,
                               const Overlay& overlay = Overlay(), SampleCounts counts = {},
                               Deadline deadline = never()) {
  const GpuOutputs on_gpu(*outputs);
  LookupReport report;
  auto rest = begin_on_device(lookup, rows, stream, features.data(), features.size(),
                              on_gpu.pointers(), Executor(), counts, overlay, &report);
  if (rest != nullptr) report = rest->finish(deadline, Executor());
  must(cudaStreamSynchronize(stream));
  on_gpu.read(outputs);
  return report;
}

// Waits until rows that were missed have come in: until `lookups` finds `wanted` hits.
template <typename Condition>
void wait_until(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("not within a minute");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace hotrow
