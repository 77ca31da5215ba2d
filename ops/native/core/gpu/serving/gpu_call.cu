// Lookups of GpuRows, and the keys of cuts that they leave to the host.
#include <algorithm>
#include <cstring>

#include "core/base/warning.h"
#include "core/gpu/kernels/device_code.h"
#include "core/gpu/serving/gpu_rows.h"

namespace hotrow {
namespace {

// The keys of a layer on the device.
class GpuLayer final : public DeviceLayer {
 public:
  GpuLayer(int device, const CutLayer& layer) : device_(device) {
    if (layer.rows() == 0) return;
    size_t size = 16;
    while (size < 2 * layer.rows()) size *= 2;
    std::vector<LayerKeys::Slot> slots(size, LayerKeys::Slot{0, 0, 0});
    layer.visit(
        [&](size_t table, const int64_t* keys, size_t count, const std::byte*, const RowVersion*) {
          const auto number = static_cast<uint32_t>(table);
          for (size_t i = 0; i < count; ++i) {
            size_t at = LayerKeys::home(keys[i], number) & (size - 1);
            while (slots[at].table != 0) at = (at + 1) & (size - 1);
            slots[at] = {keys[i], number + 1, 0};
          }
        });
    const size_t bytes = size * sizeof(LayerKeys::Slot);
    memory_.reserve(bytes, bytes);
    const OwnStream stream;
    check(cudaMemcpyAsync(memory_.data(), slots.data(), bytes, cudaMemcpyDefault, stream.get()),
          "keys of a cut");
    check(cudaStreamSynchronize(stream.get()), "keys of a cut");
    keys_ = {reinterpret_cast<const LayerKeys::Slot*>(memory_.data()), size - 1};
  }
  ~GpuLayer() override {
    try {
      const OnDevice here(device_);
      memory_ = DeviceBlock();
    } catch (const Error&) {
      // The device is lost, and its memory with it.
    }
  }
  const LayerKeys& keys() const { return keys_; }

 private:
  int device_;
  DeviceBlock memory_;
  LayerKeys keys_;
};

}  // namespace

class GpuRows::Call final : public DeviceRows::Call {
 public:
  Call(GpuRows* of, DeviceStream stream) : of_(of), here_(of->options_.gpu), stream_(stream) {
    {
      const std::lock_guard lock(of->memories_mutex_);
      if (!of->memories_.empty()) {
        memory_ = std::move(of->memories_.back());
        of->memories_.pop_back();
      }
    }
    if (memory_ == nullptr) memory_ = std::make_unique<CallMemory>();
    memory_->used.wait();
  }
  ~Call() override {
    try {
      const OnDevice here(of_->options_.gpu);
      memory_->used.record_or_wait(stream_);
    } catch (const Error&) {
      return;  // the device is lost
    }
    const std::lock_guard lock(of_->memories_mutex_);
    of_->memories_.push_back(std::move(memory_));
  }

  void look_up(const ServingFeature* features, size_t count, float* const* outputs,
               const Overlay& overlay, std::vector<std::vector<uint32_t>>* left) override;
  float* host_floats(size_t count) override {
    memory_->floats.reserve(std::max<size_t>(count, 1) * sizeof(float));
    return reinterpret_cast<float*>(memory_->floats.data());
  }
  void write_left(const std::vector<std::vector<uint32_t>>& left) override;
  void write_all(const ServingFeature* features, size_t count, float* const* outputs) override;

 private:
  // What is sent; null pointers where a feature has no such array.
  struct Message {
    Message(DeviceArena& arena, const ServingFeature* features, size_t count, size_t layers);
    ServedFeature* features;
    LayerKeys* layers;
    size_t layer_count;
    std::vector<int64_t*> keys, row_splits;
    std::vector<float*> weights;
  };
  Message write_message(const ServingFeature* features, size_t count, const Overlay& overlay,
                        float* const* outputs, size_t* bytes);

  GpuRows* const of_;
  const OnDevice here_;
  const DeviceStream stream_;
  std::unique_ptr<CallMemory> memory_;
  // Since look_up.
  std::vector<float*> outputs_;
  std::vector<size_t> widths_;
};

std::unique_ptr<DeviceRows::Call> GpuRows::begin(void* stream) {
  return std::make_unique<Call>(this, static_cast<DeviceStream>(stream));
}

GpuRows::Call::Message::Message(DeviceArena& arena, const ServingFeature* given, size_t count,
                                size_t layers_given)
    : layer_count(layers_given) {
  features = arena.take<ServedFeature>(count);
  layers = arena.take<LayerKeys>(layer_count);
  for (size_t f = 0; f < count; ++f) {
    const Segments& s = given[f].segments;
    keys.push_back(arena.take<int64_t>(s.keys));
    const bool plain = s.plain();
    row_splits.push_back(plain || s.row_splits == nullptr ? nullptr
                                                          : arena.take<int64_t>(s.samples + 1));
    weights.push_back(plain || s.weights == nullptr ? nullptr : arena.take<float>(s.keys));
  }
}

GpuRows::Call::Message GpuRows::Call::write_message(const ServingFeature* features, size_t count,
                                                    const Overlay& overlay, float* const* outputs,
                                                    size_t* bytes) {
  std::vector<LayerKeys> layers;
  for (const auto& layer : overlay.layers) {
    const LayerKeys& keys = static_cast<const GpuLayer*>(layer->on_device())->keys();
    if (keys.slots != nullptr) layers.push_back(keys);
  }
  DeviceArena sizes;
  (void)Message(sizes, features, count, layers.size());
  *bytes = sizes.used();
  const auto take = [&](DeviceArena& arena) {
    return Message(arena, features, count, layers.size());
  };
  memory_->there.reserve(*bytes);
  DeviceArena there_arena = memory_->there.arena();
  Message there = take(there_arena);
  memory_->sent.reserve(*bytes);
  DeviceArena here_arena = memory_->sent.arena();
  const Message here = take(here_arena);
  const std::vector<StoredTable>& tables = of_->rows_->tables();
  uint32_t first = 0;
  for (size_t f = 0; f < count; ++f) {
    const ServingFeature& from = features[f];
    const Segments& s = from.segments;
    const Place& place = of_->places_[from.table];
    std::copy_n(from.keys, s.keys, here.keys[f]);
    if (here.row_splits[f] != nullptr) {
      std::copy_n(s.row_splits, s.samples + 1, here.row_splits[f]);
    }
    if (here.weights[f] != nullptr) std::copy_n(s.weights, s.keys, here.weights[f]);
    ServedFeature to;
    to.keys = there.keys[f];
    to.row_splits = there.row_splits[f];
    to.weights = there.weights[f];
    to.outputs = outputs[f];
    to.cache = place.pool->cache;
    to.table = place.table;
    to.table_in_all = static_cast<uint32_t>(from.table);
    to.first = first;
    to.width = static_cast<uint32_t>(tables[from.table].width);
    to.combiner = s.combiner;
    to.type = tables[from.table].type;
    here.features[f] = to;
    first += static_cast<uint32_t>(s.outputs());
  }
  std::copy(layers.begin(), layers.end(), here.layers);
  return there;
}

void GpuRows::Call::look_up(const ServingFeature* features, size_t count, float* const* outputs,
                            const Overlay& overlay, std::vector<std::vector<uint32_t>>* left) {
  const std::vector<StoredTable>& tables = of_->rows_->tables();
  size_t all = 0;
  for (size_t f = 0; f < count; ++f) {
    all += features[f].segments.outputs();
    outputs_.push_back(outputs[f]);
    widths_.push_back(tables[features[f].table].width);
  }
  left->assign(count, {});
  if (all == 0) return;
  size_t bytes = 0;
  const Message there = write_message(features, count, overlay, outputs, &bytes);
  // Whole words, since they are read as words.
  const size_t words = (all + sizeof(uint64_t) - 1) / sizeof(uint64_t);
  memory_->left.reserve(words * sizeof(uint64_t));
  std::byte* const marks = memory_->left.data();
  std::memset(marks, 0, words * sizeof(uint64_t));
  copy_async(memory_->there.data(), memory_->sent.data(), bytes, stream_);
  const uint64_t number = of_->calls_.fetch_add(1, std::memory_order_relaxed);
  device_serving_lookup(there.features, count, all, there.layers, there.layer_count,
                        overlay.version, of_->now_.load(std::memory_order_relaxed), mix64(number),
                        reinterpret_cast<uint8_t*>(marks), stream_);
  memory_->used.record(stream_);
  memory_->used.wait();
  size_t o = 0;
  for (size_t f = 0; f < count; ++f) {
    const size_t first = o, end = o + features[f].segments.outputs();
    std::vector<uint32_t>& of_feature = (*left)[f];
    while (o < end) {
      uint64_t word = 0;
      if (o % sizeof(word) == 0 && o + sizeof(word) <= end) {
        std::memcpy(&word, marks + o, sizeof(word));
        if (word == 0) {
          o += sizeof(word);
          continue;
        }
      }
      if (marks[o] != std::byte{0}) of_feature.push_back(static_cast<uint32_t>(o - first));
      ++o;
    }
  }
}

void GpuRows::Call::write_left(const std::vector<std::vector<uint32_t>>& left) {
  size_t count = 0;
  for (const auto& outputs : left) count += outputs.size();
  memory_->rows.reserve(std::max<size_t>(count, 1) * sizeof(LeftRow));
  auto* const rows = reinterpret_cast<LeftRow*>(memory_->rows.data());
  size_t n = 0;
  uint64_t from = 0;
  for (size_t f = 0; f < left.size(); ++f) {
    for (const uint32_t output : left[f]) {
      rows[n++] = {from, outputs_[f] + size_t{output} * widths_[f], widths_[f]};
      from += widths_[f];
    }
  }
  const OnDevice here(of_->options_.gpu);
  device_write_left(rows, count, host_floats(0), stream_);
}

void GpuRows::Call::write_all(const ServingFeature* features, size_t count, float* const* outputs) {
  const OnDevice here(of_->options_.gpu);
  const float* from = host_floats(0);
  for (size_t f = 0; f < count; ++f) {
    const size_t floats =
        features[f].segments.outputs() * of_->rows_->tables()[features[f].table].width;
    copy_async(outputs[f], from, floats, stream_);
    from += floats;
  }
}

std::shared_ptr<const DeviceLayer> GpuRows::keys_of(const CutLayer& layer) {
  if (!why_off().empty()) return nullptr;
  try {
    const OnDevice here(options_.gpu);
    return std::make_shared<const GpuLayer>(options_.gpu, layer);
  } catch (const Error& error) {
    // No reason to refuse the cut.
    warn("GPU " + std::to_string(options_.gpu) + " does not take the keys of a cut with " +
         std::to_string(layer.rows()) +
         " rows, and rows are read from RAM until it is folded: " + error.what());
    return nullptr;
  }
}

}  // namespace hotrow
