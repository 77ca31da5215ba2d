#include "core/base/growing_array.h"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

namespace hotrow {

TEST_CASE("growing array: elements are found at every size, are zero at first and never move") {
  SlabMemory memory;
  GrowingArray<std::atomic<uint32_t>> array;
  std::vector<uint32_t> indices = {0xffffffff, 0xfffffffe, 0x80000000, 0x7fffffff};
  for (uint32_t i = 0; i < 20000; i += 7) indices.push_back(i);
  for (unsigned shift = 0; shift < 31; ++shift) indices.push_back((1u << shift) + 100000);
  std::vector<std::atomic<uint32_t>*> addresses;
  CHECK(array.find(0) == nullptr);
  for (size_t i = 0; i < indices.size(); ++i) {
    addresses.push_back(&array.make(indices[i], memory));
    REQUIRE(*addresses.back() == 0);
    *addresses.back() = static_cast<uint32_t>(i) + 1;
  }
  for (size_t i = 0; i < indices.size(); ++i) {
    REQUIRE(array.find(indices[i]) == addresses[i]);
    REQUIRE(&array[indices[i]] == addresses[i]);
    REQUIRE(&array.make(indices[i], memory) == addresses[i]);
    REQUIRE(*addresses[i] == i + 1);
  }
  CHECK(array.find(0xf0000000) == nullptr);
  array.clear();
  CHECK(array.find(0) == nullptr);
}

TEST_CASE("growing array: at most a 16th more memory than elements") {
  SlabMemory memory;
  GrowingArray<std::atomic<uint32_t>> array;
  for (uint32_t i = 0; i < 3000000; ++i) {
    array.make(i, memory);
    if (i >= 4096 && i % 1000 == 0) REQUIRE(memory.bytes() <= size_t{i} * 4 * 17 / 16 + 1024);
  }
}

TEST_CASE("growing array: readers see elements while it grows") {
  SlabMemory memory;
  GrowingArray<std::atomic<uint32_t>> array;
  std::atomic<uint32_t> made{0};
  std::thread reader([&] {
    for (uint32_t seen = 0; seen < 100000;) {
      seen = made;
      for (uint32_t i = seen > 100 ? seen - 100 : 0; i < seen; ++i) REQUIRE(array[i] == i + 1);
    }
  });
  for (uint32_t i = 0; i < 100000; ++i) {
    array.make(i, memory) = i + 1;
    made = i + 1;
  }
  reader.join();
}

}  // namespace hotrow
