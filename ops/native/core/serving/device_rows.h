// A version's hot rows in the memory of a GPU, over those in RAM (serving/hot_rows.h), over the
// store. The interface; gpu/serving/gpu_rows.cu is the GPU's. A core without CUDA has none.
//
// A row comes in when lookups ask for it more often than for the row that leaves for it; it is
// copied from RAM by a thread of its own, so no lookup waits for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/serving/cut_layer.h"
#include "core/serving/hot_rows.h"
#include "core/serving/lookup.h"

namespace hotrow {

// Layers of cuts that the GPU checks; lookups with more go to the rows in RAM alone.
constexpr size_t kMostDeviceLayers = 32;

struct DeviceRowsOptions {
  int gpu = -1;        // CUDA's number; below 0: none
  uint64_t bytes = 0;  // of the GPU's memory, overhead included
  CachePolicy policy = CachePolicy::kLfu;
  // Lookups of fewer keys than pays off, as measured at the start, go to the rows in RAM alone.
  // Else all go to the GPU.
  bool if_faster = false;
};

// Sums of a table's lookups on a GPU.
struct DeviceLookupCounts {
  uint64_t hits = 0;    // keys, duplicates too, of outputs that the GPU wrote
  uint64_t misses = 0;  // of outputs that were left to the host
};

struct DeviceRowCounts {
  uint64_t inserted = 0, evicted = 0, refused = 0, updated = 0, removed = 0;
  uint64_t rows() const { return inserted - evicted - removed; }
};

// Safe from several threads.
class DeviceRows {
 public:
  virtual ~DeviceRows() = default;

  // One lookup, with memory that is used again when it ends. Its work on the stream may then still
  // go on.
  class Call {
   public:
    virtual ~Call() = default;
    // Writes the outputs whose rows are all on the GPU and lists the others by feature, ascending.
    // Waits for the stream. features: checked. outputs: on the GPU, as for ServingLookup.
    // left: (count).
    virtual void look_up(const ServingFeature* features, size_t count, float* const* outputs,
                         const Overlay& overlay, std::vector<std::vector<uint32_t>>* left) = 0;
    // Memory of the host that the GPU reads, for `count` floats.
    virtual float* host_floats(size_t count) = 0;
    // Copies rows of width D from there to outputs left by look_up: those of a feature one after
    // the other, feature after feature.
    virtual void write_left(const std::vector<std::vector<uint32_t>>& left) = 0;
    // Copies all outputs from there, of a call without look_up.
    virtual void write_all(const ServingFeature* features, size_t count, float* const* outputs) = 0;
  };
  // stream: a cudaStream_t of the GPU.
  virtual std::unique_ptr<Call> begin(void* stream) = 0;

  // Lookups of fewer keys are not worth the GPU.
  virtual uint64_t least_keys() const = 0;
  // Measures that: keys of a table of which most are cached.
  virtual void measure(size_t table, const int64_t* keys, size_t count) = 0;
  // The keys of a cut's layer, for lookups with overlays that have it. Null if the GPU does not
  // take them: then these lookups go to the rows in RAM alone.
  virtual std::shared_ptr<const DeviceLayer> keys_of(const CutLayer& layer) = 0;
  // Keys whose rows were not on the GPU; their rows may come in later.
  virtual void want(size_t table, const int64_t* keys, size_t count) = 0;
  // Offers rows now, and waits for them: the warm-up's. keys: (count), distinct.
  virtual void fill(size_t table, const int64_t* keys, size_t count) = 0;

  // As those of HotRows, which has been updated before. They wait for the GPU. If it fails, lookups
  // use it no more (why_off).
  virtual void update(size_t table, const int64_t* keys, size_t count, const std::byte* rows,
                      const RowVersion* versions) = 0;
  virtual void invalidate_shard(size_t shard, size_t shards) = 0;
  virtual void clear() = 0;

  // Whether the GPU has failed, and all lookups go to the rows in RAM; why: "" if not.
  virtual std::string why_off() const = 0;
  virtual size_t slots() const = 0;
  virtual size_t bytes() const = 0;  // reserved, of the GPU's memory
  // Adds to the counts of a table's lookups.
  virtual void note(size_t table, uint64_t hits, uint64_t misses) = 0;
  virtual DeviceLookupCounts lookups(size_t table) const = 0;
  virtual DeviceRowCounts counts() const = 0;  // waits for the GPU
};

// rows: in RAM, below those of the GPU; the result keeps them. Fails with FailedPrecondition
// without the GPU, or in a core without CUDA; with InvalidArgument for tables that do not fit; with
// ResourceExhausted when the GPU does not have the memory.
std::unique_ptr<DeviceRows> make_device_rows(std::shared_ptr<HotRows> rows,
                                             const DeviceRowsOptions& options);
// Fails as make_device_rows without the GPU.
void check_serving_gpu(int gpu);

}  // namespace hotrow
