#include "core/ranks/batch_message.h"

#include <cstring>

namespace hotrow {
namespace {

constexpr int64_t kSplits = 1, kWeights = 2;

size_t weights_bytes(size_t keys) { return (keys * sizeof(float) + 7) / 8 * 8; }

std::byte* append(std::byte* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return to + bytes;
}

}  // namespace

void BatchMessage::collect(const std::vector<const Feature*>& features) {
  features_.clear();
  has_splits_.clear();
  has_weights_.clear();
  for (const Feature* feature : features) {
    features_.push_back(*feature);
    has_splits_.push_back(feature->segments.row_splits != nullptr);
    has_weights_.push_back(feature->segments.weights != nullptr);
  }
}

void BatchMessage::write_facts(int64_t* facts) const {
  for (size_t f = 0; f < features_.size(); ++f, facts += kFacts) {
    facts[0] = static_cast<int64_t>(features_[f].segments.keys);
    facts[1] = static_cast<int64_t>(features_[f].segments.samples);
    facts[2] = (has_splits_[f] ? kSplits : 0) | (has_weights_[f] ? kWeights : 0);
  }
}

void BatchMessage::read_facts(const std::vector<Feature>& like, const int64_t* facts) {
  features_ = like;
  has_splits_.assign(like.size(), false);
  has_weights_.assign(like.size(), false);
  for (size_t f = 0; f < like.size(); ++f, facts += kFacts) {
    Segments& segments = features_[f].segments;
    segments.keys = static_cast<size_t>(facts[0]);
    segments.samples = static_cast<size_t>(facts[1]);
    has_splits_[f] = (facts[2] & kSplits) != 0;
    has_weights_[f] = (facts[2] & kWeights) != 0;
  }
}

size_t BatchMessage::bytes() const {
  size_t bytes = 0;
  for (size_t f = 0; f < features_.size(); ++f) {
    const Segments& segments = features_[f].segments;
    bytes += segments.keys * sizeof(int64_t);
    if (has_splits_[f]) bytes += (segments.samples + 1) * sizeof(int64_t);
    if (has_weights_[f]) bytes += weights_bytes(segments.keys);
  }
  return bytes;
}

size_t BatchMessage::outputs() const {
  size_t outputs = 0;
  for (const Feature& feature : features_) outputs += feature.segments.outputs();
  return outputs;
}

void BatchMessage::write(std::byte* message) const {
  for (size_t f = 0; f < features_.size(); ++f) {
    const Segments& segments = features_[f].segments;
    message = append(message, features_[f].keys, segments.keys * sizeof(int64_t));
    if (has_splits_[f]) {
      message = append(message, segments.row_splits, (segments.samples + 1) * sizeof(int64_t));
    }
    if (has_weights_[f]) {
      append(message, segments.weights, segments.keys * sizeof(float));
      message += weights_bytes(segments.keys);
    }
  }
}

void BatchMessage::take(const std::byte* message) {
  for (size_t f = 0; f < features_.size(); ++f) {
    Feature& feature = features_[f];
    Segments& segments = feature.segments;
    feature.keys = reinterpret_cast<const int64_t*>(message);
    message += segments.keys * sizeof(int64_t);
    segments.row_splits = nullptr;
    segments.weights = nullptr;
    if (has_splits_[f]) {
      segments.row_splits = reinterpret_cast<const int64_t*>(message);
      message += (segments.samples + 1) * sizeof(int64_t);
    }
    if (has_weights_[f]) {
      segments.weights = reinterpret_cast<const float*>(message);
      message += weights_bytes(segments.keys);
    }
  }
}

}  // namespace hotrow
