#include "core/base/slab_memory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "tests/error_code.h"

namespace hotrow {

TEST_CASE("slab memory: pieces are zero, aligned and do not overlap, from several threads") {
  SlabMemory memory;
  std::vector<std::pair<std::byte*, size_t>> pieces[3];
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&memory, &mine = pieces[t], t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 400; ++i) {
        const size_t bytes = 1 + random() % (i % 50 == 0 ? 200000 : 5000);
        std::byte* piece = memory.take(bytes);
        mine.emplace_back(piece, bytes);
        const bool zero =
            std::all_of(piece, piece + bytes, [](std::byte b) { return b == std::byte{0}; });
        if (!zero || reinterpret_cast<uintptr_t>(piece) % 64 != 0) mine.emplace_back(nullptr, 0);
        std::memset(piece, 1 + static_cast<int>(t), bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::pair<std::byte*, size_t>> all;
  size_t taken = 0;
  for (size_t t = 0; t < 3; ++t) {
    REQUIRE(pieces[t].size() == 400);
    for (const auto& [piece, bytes] : pieces[t]) {
      REQUIRE(
          std::all_of(piece, piece + bytes, [&](std::byte b) { return b == std::byte(1 + t); }));
      taken += bytes;
      all.emplace_back(piece, bytes);
    }
  }
  std::sort(all.begin(), all.end());
  for (size_t i = 1; i < all.size(); ++i)
    REQUIRE(all[i - 1].first + all[i - 1].second <= all[i].first);
  CHECK(memory.bytes() >= taken);
  CHECK(memory.bytes() <= taken + all.size() * 63);
  memory.clear();
  CHECK(memory.bytes() == 0);
  CHECK(*memory.take(100) == std::byte{0});
}

TEST_CASE("slab memory: more than the machine can map is refused") {
  SlabMemory memory;
  CHECK(error_code([&] { memory.take(size_t{1} << 62); }) == Code::kResourceExhausted);
  CHECK(memory.take(64) != nullptr);
}

namespace {

// The mappings that it was passed and that did not go.
struct Slabs : SlabListener {
  std::map<std::byte*, size_t> all;
  size_t most = 1000;

  void add_slab(std::byte* at, size_t bytes) override {
    if (all.size() == most) fail(Code::kResourceExhausted, "no more slabs");
    REQUIRE(all.emplace(at, bytes).second);
  }
  void remove_slab(std::byte* at) noexcept override { REQUIRE(all.erase(at) == 1); }
  bool has(const std::byte* at, size_t bytes) const {
    const auto next = all.upper_bound(const_cast<std::byte*>(at));
    if (next == all.begin()) return false;
    const auto slab = std::prev(next);
    return at + bytes <= slab->first + slab->second;
  }
};

}  // namespace

TEST_CASE("slab memory: a listener knows every mapping as long as it exists") {
  Slabs slabs;
  {
    SlabMemory memory;
    const std::byte* const first = memory.take(100000);
    memory.set_listener(&slabs);
    CHECK(slabs.has(first, 100000));
    const std::byte* const second = memory.take(300000);
    CHECK(slabs.has(second, 300000));
    memory.clear();
    CHECK(slabs.all.empty());
    CHECK(slabs.has(memory.take(5), 5));
    memory.set_listener(nullptr);
    CHECK(slabs.all.empty());
    memory.take(500000);
    CHECK(slabs.all.empty());
    memory.set_listener(&slabs);
    CHECK(slabs.all.size() == 2);
  }
  CHECK(slabs.all.empty());
}

TEST_CASE("slab memory: without its listener a mapping is undone, and the next is tried again") {
  Slabs slabs;
  SlabMemory memory;
  memory.take(100000);
  memory.take(300000);
  slabs.most = 1;
  CHECK(error_code([&] { memory.set_listener(&slabs); }) == Code::kResourceExhausted);
  CHECK(slabs.all.empty());
  slabs.most = 2;
  memory.set_listener(&slabs);
  const size_t bytes = memory.bytes();
  CHECK(error_code([&] { memory.take(1000000); }) == Code::kResourceExhausted);
  CHECK(memory.bytes() == bytes);
  CHECK(slabs.all.size() == 2);
  slabs.most = 3;
  CHECK(slabs.has(memory.take(1000000), 1000000));
  memory.set_listener(nullptr);
}

}  // namespace hotrow
