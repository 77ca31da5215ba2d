// Row lines on the device, for tests: each with a copy on the CPU that the CPU's kernels work on.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/kernels/row_line.h"
#include "tests/gpu/device_array.h"

namespace hotrow {

// `rows` lines of a layout, `gap` bytes after each, with headers and random weights.
class Lines {
 public:
  Lines(const LineLayout& layout, const Optimizer& optimizer, size_t rows, size_t gap,
        unsigned seed)
      : layout_(layout),
        stride_(sizeof(RowHeader) + layout.bytes() + gap),
        cpu_(rows * stride_, std::byte{0x5a}),
        device_(rows * stride_) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 0.5f);
    std::vector<float> weights(layout.width);
    for (size_t u = 0; u < rows; ++u) {
      for (float& w : weights) w = normal(random);
      const RowHeader header{static_cast<int64_t>(u) * 977 - 5000, 0, static_cast<uint32_t>(u)};
      std::memcpy(line(u), &header, sizeof(header));
      kernels().initialize(layout, optimizer, weights.data(), line(u));
    }
    device_.write(cpu_);
  }

  const LineLayout& layout() const { return layout_; }
  std::byte* line(size_t u) { return cpu_.data() + u * stride_; }
  std::byte* device_line(size_t u) { return device_.data() + u * stride_; }
  // Bytes that differ.
  size_t differences() const {
    const auto got = device_.read();
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != cpu_[i];
    return wrong;
  }
  // After changes of lines on the CPU.
  void write() { device_.write(cpu_); }

 private:
  LineLayout layout_;
  size_t stride_;
  std::vector<std::byte> cpu_;
  DeviceArray<std::byte> device_;
};

}  // namespace hotrow
