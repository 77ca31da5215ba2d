// Shared by the files of the C ABI: exceptions become codes, arguments become core types.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <vector>

#include "core/abi/c_api.h"
#include "core/base/status.h"
#include "core/kernels/feature.h"

namespace hotrow::capi {

inline std::string& last_error() {
  thread_local std::string message;
  return message;
}

// Runs `body` and converts an exception into a code and a message.
template <typename Body>
int guarded(Body&& body) {
  try {
    body();
    return 0;
  } catch (const Error& error) {
    last_error() = error.what();
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    last_error() = "out of memory";
    return static_cast<int>(Code::kResourceExhausted);
  } catch (const std::exception& error) {
    last_error() = error.what();
    return static_cast<int>(Code::kInternal);
  }
}

inline Segments to_segments(const hr_feature& from) {
  if (from.combiner < 0 || from.combiner > 3) {
    fail(Code::kInvalidArgument, "feature %s: combiner %d; one of 0 to 3", from.name,
         from.combiner);
  }
  return {static_cast<Combiner>(from.combiner), from.key_count, from.samples, from.row_splits,
          from.weights};
}

inline std::vector<Feature> to_features(const hr_feature* features, size_t count) {
  std::vector<Feature> result(count);
  for (size_t f = 0; f < count; ++f) {
    result[f] = {features[f].name, features[f].keys, to_segments(features[f])};
  }
  return result;
}

// The keys of one feature that is not pooled.
inline std::vector<Feature> one_feature(const int64_t* keys, size_t count) {
  Feature feature;
  feature.keys = keys;
  feature.segments.keys = feature.segments.samples = count;
  return {feature};
}

}  // namespace hotrow::capi
