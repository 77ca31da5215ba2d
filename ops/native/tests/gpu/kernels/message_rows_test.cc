// Rows in the messages of ranks that receive whole batches, against loops on the CPU.
#include "core/gpu/kernels/message_rows.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "core/gpu/kernels/owner_parts.h"
#include "tests/gpu/device_array.h"

namespace hotrow {
namespace {

using Floats = DeviceArray<float>;

std::vector<float> random_floats(std::mt19937& random, size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(random() % 2001) / 100.0f - 10.0f);
  }
  return values;
}

}  // namespace

TEST_CASE("device messages: rows are copied between strides, and nothing beside them is written") {
  std::mt19937 random(3);
  struct Shape {
    size_t rows, words, from_stride, to_stride;
  };
  const std::vector<Shape> shapes{{1, 7000, 7000, 7000}, {500, 3, 3, 9}, {70, 33, 40, 33},
                                  {0, 4, 4, 4},          {9, 0, 0, 5},   {1, 1, 1, 1}};
  std::vector<std::vector<float>> from;
  std::vector<std::unique_ptr<Floats>> sources, targets;
  std::vector<DeviceRowCopy> copies;
  for (const Shape& shape : shapes) {
    from.push_back(random_floats(random, shape.rows * shape.from_stride + 1));
    sources.push_back(std::make_unique<Floats>(from.back()));
    targets.push_back(
        std::make_unique<Floats>(std::vector<float>(shape.rows * shape.to_stride + 1, -77.0f)));
    copies.push_back({sources.back()->data(), targets.back()->data(), shape.rows, shape.words,
                      shape.from_stride, shape.to_stride, false});
  }
  const Scratch scratch(device_copy_rows_scratch(copies.size()));
  device_copy_rows(copies.data(), copies.size(), scratch.data(), scratch.bytes(), kStream);
  for (size_t i = 0; i < shapes.size(); ++i) {
    CAPTURE(i);
    const Shape& shape = shapes[i];
    std::vector<float> expected(shape.rows * shape.to_stride + 1, -77.0f);
    for (size_t row = 0; row < shape.rows; ++row) {
      for (size_t j = 0; j < shape.words; ++j) {
        expected[row * shape.to_stride + j] = from[i][row * shape.from_stride + j];
      }
    }
    CHECK(targets[i]->read() == expected);
  }
}

TEST_CASE("device messages: sums begin at 0, so that -0 becomes 0") {
  const Floats from(std::vector<float>{-0.0f, 0.0f, -1.0f, 2.0f}), to(4);
  DeviceRowCopy copy = DeviceRowCopy::of(from.data(), to.data(), 4);
  copy.sums = true;
  const Scratch scratch(device_copy_rows_scratch(1));
  device_copy_rows(&copy, 1, scratch.data(), scratch.bytes(), kStream);
  const std::vector<float> got = to.read();
  CHECK(got == std::vector<float>{0.0f, 0.0f, -1.0f, 2.0f});
  CHECK(!std::signbit(got[0]));
}

TEST_CASE(
    "device messages: gradients are cut by columns, a NaN for each rank if one is not finite") {
  std::mt19937 random(4);
  for (const size_t ranks : {size_t{1}, size_t{2}, size_t{3}, size_t{8}}) {
    for (const size_t width : {size_t{2}, size_t{5}, size_t{8}, size_t{70}}) {
      CAPTURE(ranks);
      CAPTURE(width);
      const std::vector<size_t> rows{37, 0, 9};
      std::vector<std::vector<float>> from;
      std::vector<std::unique_ptr<Floats>> sources, targets;
      std::vector<DeviceColumnCut> cuts;
      std::vector<float*> to;
      const auto columns = [&](size_t r) { return width / ranks + (r < width % ranks ? 1 : 0); };
      for (const size_t count : rows) {
        from.push_back(random_floats(random, count * width));
        if (count > 5) {
          from.back()[2 * width + width - 1] = INFINITY;
          from.back()[4 * width] = NAN;
        }
        sources.push_back(std::make_unique<Floats>(from.back()));
        cuts.push_back({sources.back()->data(), count, width});
        for (size_t r = 0; r < ranks; ++r) {
          targets.push_back(std::make_unique<Floats>(count * columns(r)));
          to.push_back(targets.back()->data());
        }
      }
      const Scratch scratch(device_cut_columns_scratch(cuts.size(), ranks));
      device_cut_columns(cuts.data(), to.data(), cuts.size(), ranks, scratch.data(),
                         scratch.bytes(), kStream);
      for (size_t c = 0; c < rows.size(); ++c) {
        size_t first = 0;
        for (size_t r = 0; r < ranks; first += columns(r), ++r) {
          const std::vector<float> got = targets[c * ranks + r]->read();
          for (size_t i = 0; i < got.size(); ++i) {
            const size_t row = i / columns(r), column = i % columns(r);
            if ((row == 2 || row == 4) && column == 0) {
              REQUIRE(std::isnan(got[i]));
            } else {
              const float expected = from[c][row * width + first + column];
              REQUIRE((got[i] == expected || (std::isnan(expected) && std::isnan(got[i]))));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("device messages: partial sums are added in the order of the ranks") {
  std::mt19937 random(5);
  const size_t ranks = 3;
  const std::vector<size_t> values{4100, 0, 5};
  std::vector<std::vector<float>> from;
  std::vector<std::unique_ptr<Floats>> sources, targets;
  std::vector<DevicePartSum> sums;
  std::vector<const float*> parts;
  for (const size_t count : values) {
    for (size_t r = 0; r < ranks; ++r) {
      from.push_back(random_floats(random, count));
      for (float& value : from.back()) value *= r == 1 ? 1e8f : 1.0f;
      sources.push_back(std::make_unique<Floats>(from.back()));
      parts.push_back(sources.back()->data());
    }
    targets.push_back(std::make_unique<Floats>(count));
    sums.push_back({targets.back()->data(), count});
  }
  const Scratch scratch(device_add_parts_scratch(sums.size(), ranks));
  device_add_parts(sums.data(), parts.data(), sums.size(), ranks, scratch.data(), scratch.bytes(),
                   kStream);
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<float> expected = from[i * ranks];
    for (size_t r = 1; r < ranks; ++r) {
      for (size_t j = 0; j < values[i]; ++j) expected[j] += from[i * ranks + r][j];
    }
    CHECK(targets[i]->read() == expected);
  }
}

TEST_CASE("device messages: row splits and weights of the keys that a rank owns") {
  // Two features: one with row splits, 4 samples; one with a key a sample. Two owners, by key
  // mod 2.
  const std::vector<int64_t> keys{2, 3, 5, 4, 8, 6, 7, 9, 12};
  const std::vector<int64_t> splits{0, 3, 3, 5, 6};
  const DeviceArray<int64_t> keys_there(keys), splits_there(splits);
  const DeviceArray<uint32_t> begins(std::vector<uint32_t>{0, 6, 9});
  DeviceUnique all;
  all.keys = keys_there.data();
  all.table_first = begins.data();
  DeviceArena sizes;
  DeviceOwners::take(sizes, keys.size(), 4);
  const Scratch memory(sizes.used()), scratch(device_owners_scratch(keys.size(), 2, 2));
  DeviceArena arena(memory.data(), memory.bytes());
  const DeviceOwners owners = DeviceOwners::take(arena, keys.size(), 4);
  const std::vector<DeviceOwnerRule> rules(2);
  device_owners(all, keys.size(), 2, 2, rules.data(), owners, scratch.data(), scratch.bytes(),
                kStream);
  CHECK(read_device(owners.grouped, keys.size()) ==
        std::vector<int64_t>{2, 4, 8, 6, 3, 5, 12, 7, 9});
  const Floats shares(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8}), weights(keys.size());
  device_order_weights(owners, shares.data(), keys.size(), weights.data(), kStream);
  CHECK(weights.read() == std::vector<float>{0, 3, 4, 5, 1, 2, 8, 6, 7});
  std::vector<std::unique_ptr<DeviceArray<int64_t>>> to;
  std::vector<DevicePartSplits> parts;
  for (size_t group = 0; group < 4; ++group) {
    const size_t f = group / 2, outputs = f == 0 ? 4 : 3;
    to.push_back(std::make_unique<DeviceArray<int64_t>>(outputs + 1));
    parts.push_back(
        {f == 0 ? splits_there.data() : nullptr, f * 6, outputs, group, to.back()->data()});
  }
  const Scratch more(device_part_splits_scratch(parts.size()));
  device_write_part_splits(parts.data(), parts.size(), owners, more.data(), more.bytes(), kStream);
  CHECK(to[0]->read() == std::vector<int64_t>{0, 1, 1, 3, 4});
  CHECK(to[1]->read() == std::vector<int64_t>{0, 2, 2, 2, 2});
  CHECK(to[2]->read() == std::vector<int64_t>{0, 0, 0, 1});
  CHECK(to[3]->read() == std::vector<int64_t>{0, 1, 2, 2});
}

}  // namespace hotrow
