#include "core/store/store_layout.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "core/base/status.h"
#include "tests/error_code.h"

namespace hotrow {
namespace {

uint32_t slot_of_text(const std::string& key) { return slot_of(key.data(), key.size()); }

std::string page_name(const StoreNames& names, size_t shard, size_t table, uint64_t page) {
  char name[StoreNames::kLongestPage];
  return {name, names.page(shard, table, page, name)};
}

}  // namespace

TEST_CASE("store_layout: slots are those of Redis") {
  CHECK(slot_of_text("123456789") == 0x31C3);
  CHECK(slot_of_text("") == 0);
  CHECK(slot_of_text("foo") == 12182);
  CHECK(slot_of_text("{foo}") == 12182);
  CHECK(slot_of_text("a{foo}b{bar}") == 12182);
  CHECK(slot_of_text("{foo") != slot_of_text("foo"));
  CHECK(slot_of_text("foo{}{bar}") != slot_of_text("bar"));  // an empty tag: the whole key
  CHECK(slot_of_text("}foo{bar}") == slot_of_text("bar"));
}

TEST_CASE("store_layout: tags are distinct and lie evenly over the slots") {
  for (size_t shards = 1; shards <= kMostStoreShards; shards *= 2) {
    const StoreNames names(shards, 77);
    REQUIRE(names.shards() == shards);
    std::set<std::string> distinct;
    for (size_t s = 0; s < shards; ++s) {
      const std::string& marker = names.marker(s);
      distinct.insert(marker);
      CHECK(names.slot(s) == slot_of(marker.data(), marker.size()));
      CHECK(names.slot(s) / (kSlots / shards) == s);
      const std::string page = page_name(names, s, 3, 1000000);
      CHECK(slot_of(page.data(), page.size()) == names.slot(s));
    }
    CHECK(distinct.size() == shards);
  }
}

TEST_CASE("store_layout: names are those of docs/formats.md") {
  const StoreNames names(1, 0);
  CHECK(names.marker(0) == "hr{0}0");
  CHECK(page_name(names, 0, 0, 0) == "hr{0}0:000");
  const StoreNames later(1, 64);
  CHECK(later.marker(0) == "hr{0}10");
  CHECK(page_name(later, 0, 65, 63) == "hr{0}10:11_");
  CHECK(page_name(later, 0, 4095, 64) == "hr{0}10:__10");
  CHECK(page_name(StoreNames(4096, ~uint64_t{0}), 4095, 4095, ~uint64_t{0}).size() <=
        StoreNames::kLongestPage);
}

TEST_CASE("store_layout: only powers of two up to 4096 are numbers of shards") {
  for (const size_t shards : {0, 3, 100, 8192}) {
    CHECK(error_code([&] { StoreNames(shards, 1); }) == Code::kInvalidArgument);
  }
}

TEST_CASE("store_layout: a page is a range of mixed keys") {
  for (int64_t key = -1000; key < 1000; ++key) {
    CHECK(page_of(key, 1) == 0);
    CHECK(page_of(key, 1000) < 1000);
    CHECK(page_of(key, 1000) / 10 == page_of(key, 100));
    CHECK(page_of(key, uint64_t{1} << 32) == mix64(static_cast<uint64_t>(key)) >> 32);
  }
}

}  // namespace hotrow
