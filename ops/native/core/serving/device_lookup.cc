#include "core/serving/device_lookup.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace hotrow {
namespace {

// A feature of the outputs that are left to the host.
struct LeftFeature {
  std::vector<int64_t> keys, row_splits;
  std::vector<float> weights;
  std::vector<uint32_t> samples;

  // outputs: those left of `from`. samples: of the request.
  ServingFeature take(const ServingFeature& from, const std::vector<uint32_t>& outputs,
                      size_t request_samples) {
    const Segments& s = from.segments;
    const bool pooled = !s.plain();
    const bool counted = s.outputs() == request_samples;
    row_splits.push_back(0);
    for (const uint32_t b : outputs) {
      const size_t begin = pooled ? s.begin_of(b) : b, end = pooled ? s.begin_of(b + 1) : b + 1;
      keys.insert(keys.end(), from.keys + begin, from.keys + end);
      if (pooled && s.weights != nullptr) {
        weights.insert(weights.end(), s.weights + begin, s.weights + end);
      }
      row_splits.push_back(static_cast<int64_t>(keys.size()));
      samples.push_back(counted ? b : 0);
    }
    ServingFeature to;
    to.name = from.name;
    to.table = from.table;
    to.keys = keys.data();
    to.segments.combiner = s.combiner;
    to.segments.keys = keys.size();
    to.segments.samples = outputs.size();
    to.segments.row_splits = pooled ? row_splits.data() : nullptr;
    to.segments.weights = weights.empty() ? nullptr : weights.data();
    to.samples = samples.data();
    return to;
  }
};

// What the host does of a lookup.
class HostPart final : public UnfinishedLookup {
 public:
  HostPart(DeviceRows& rows, std::unique_ptr<DeviceRows::Call> call)
      : rows_(rows), call_(std::move(call)) {}

  // Keys whose rows the GPU has written; they count as hits.
  void set_found(uint64_t keys) { found_ = keys; }
  // Returns whether it is over.
  bool begin(const ServingLookup& host, const ServingFeature* features, size_t count,
             float* const* outputs, std::vector<std::vector<uint32_t>> left,
             const Executor& executor, SampleCounts counts, const Overlay& overlay,
             LookupReport* report) {
    left_ = std::move(left);
    whole_ = left_.empty();
    if (whole_) {
      features_.assign(features, features + count);
      outputs_.assign(outputs, outputs + count);
    } else {
      parts_.resize(count);
      for (size_t f = 0; f < count; ++f) {
        features_.push_back(parts_[f].take(features[f], left_[f], counts.samples));
      }
    }
    size_t floats = 0;
    for (const ServingFeature& feature : features_) floats += floats_of(host, feature);
    float* at = call_->host_floats(floats);
    for (const ServingFeature& feature : features_) {
      on_host_.push_back(at);
      at += floats_of(host, feature);
    }
    rest_ = host.begin(features_.data(), count, on_host_.data(), executor, counts, overlay, report);
    *report = with_found(*report);
    if (rest_ == nullptr) write();
    return rest_ == nullptr;
  }

  LookupReport finish(Deadline deadline, const Executor& executor) override {
    const LookupReport report = rest_->finish(deadline, executor);
    write();
    return with_found(report);
  }

 private:
  LookupReport with_found(LookupReport report) const {
    report.keys += found_;
    report.hits += found_;
    return report;
  }
  static size_t floats_of(const ServingLookup& host, const ServingFeature& feature) {
    return feature.segments.outputs() * host.tables()[feature.table].width;
  }
  void write() {
    if (whole_) {
      call_->write_all(features_.data(), features_.size(), outputs_.data());
      return;
    }
    call_->write_left(left_);
    for (const ServingFeature& feature : features_) {
      rows_.want(feature.table, feature.keys, feature.segments.keys);
    }
  }

  DeviceRows& rows_;
  std::unique_ptr<DeviceRows::Call> call_;
  uint64_t found_ = 0;
  bool whole_ = false;
  std::vector<std::vector<uint32_t>> left_;  // by feature
  std::vector<LeftFeature> parts_;
  std::vector<ServingFeature> features_;
  std::vector<float*> outputs_, on_host_;
  std::unique_ptr<UnfinishedLookup> rest_;
};

// Whether the GPU knows the keys of the overlay's layers.
bool has_layers(const Overlay& overlay) {
  return overlay.layers.size() <= kMostDeviceLayers &&
         std::all_of(overlay.layers.begin(), overlay.layers.end(),
                     [](const auto& layer) { return layer->on_device() != nullptr; });
}

}  // namespace

std::unique_ptr<UnfinishedLookup> begin_on_device(const ServingLookup& host, DeviceRows& rows,
                                                  void* stream, const ServingFeature* features,
                                                  size_t count, float* const* outputs,
                                                  const Executor& executor, SampleCounts counts,
                                                  const Overlay& overlay, LookupReport* report) {
  uint64_t keys = 0;
  host.check(features, count, &keys);
  std::unique_ptr<DeviceRows::Call> call = rows.begin(stream);
  std::vector<std::vector<uint32_t>> left;
  uint64_t misses = keys;
  // The host counts rows that may be old, for each sample.
  if (keys >= rows.least_keys() && counts.from_memory == nullptr && has_layers(overlay)) {
    call->look_up(features, count, outputs, overlay, &left);
    bool all_written = true;
    misses = 0;
    for (size_t f = 0; f < count; ++f) {
      const Segments& s = features[f].segments;
      uint64_t of_feature = s.plain() ? left[f].size() : 0;
      if (!s.plain()) {
        for (const uint32_t b : left[f]) of_feature += s.begin_of(b + 1) - s.begin_of(b);
      }
      rows.note(features[f].table, s.keys - of_feature, of_feature);
      misses += of_feature;
      all_written = all_written && left[f].empty();
    }
    if (all_written) {
      if (counts.defaulted != nullptr) std::fill_n(counts.defaulted, counts.samples, 0);
      *report = {};
      report->keys = report->hits = keys;
      return nullptr;
    }
  }
  auto part = std::make_unique<HostPart>(rows, std::move(call));
  part->set_found(keys - misses);
  const bool over = part->begin(host, features, count, outputs, std::move(left), executor, counts,
                                overlay, report);
  if (over) return nullptr;
  return part;
}

}  // namespace hotrow
