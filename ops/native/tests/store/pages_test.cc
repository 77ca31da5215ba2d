#include "core/store/pages.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "tests/error_code.h"

namespace hotrow {
namespace {

using Sums = std::array<uint64_t, 3>;
using Page = std::pair<uint32_t, uint64_t>;  // shard, page

struct Rows {
  std::vector<int64_t> keys;
  std::vector<std::byte> bytes;
  size_t row_bytes = 0;
};

Rows random_rows(size_t count, size_t row_bytes) {
  std::mt19937_64 random(count);
  Rows rows;
  rows.row_bytes = row_bytes;
  for (size_t i = 0; i < count; ++i) rows.keys.push_back(static_cast<int64_t>(random()));
  for (size_t i = 0; i < count * row_bytes; ++i) {
    rows.bytes.push_back(static_cast<std::byte>(random()));
  }
  return rows;
}

std::string record(const Rows& rows, size_t i, RowVersion version) {
  std::string text(kRecordHead + rows.row_bytes, '\0');
  std::memcpy(text.data(), &rows.keys[i], 8);
  std::memcpy(text.data() + 8, &version, 8);
  std::memcpy(text.data() + 16, rows.bytes.data() + i * rows.row_bytes, rows.row_bytes);
  return text;
}

size_t number_of(const std::string& text, char mark, size_t* at) {
  REQUIRE(text[*at] == mark);
  const size_t end = text.find("\r\n", *at);
  const size_t number = std::stoul(text.substr(*at + 1, end - *at - 1));
  *at = end + 2;
  return number;
}

// The arguments of each command.
std::vector<std::vector<std::string>> parse(const std::string& payload) {
  std::vector<std::vector<std::string>> commands;
  for (size_t at = 0; at < payload.size();) {
    commands.emplace_back(number_of(payload, '*', &at));
    for (std::string& argument : commands.back()) {
      const size_t length = number_of(payload, '$', &at);
      argument = payload.substr(at, length);
      at += length + 2;
      REQUIRE(payload.substr(at - 2, 2) == "\r\n");
    }
  }
  return commands;
}

struct Written {
  std::map<std::string, std::string> pages;
  size_t commands = 0;
};

Written pack(const PagePlace& place, const Rows& rows, const std::vector<uint32_t>& only = {}) {
  const PackedPages packed(place, rows.keys.data(), rows.bytes.data(), rows.keys.size(),
                           rows.row_bytes, 5, only);
  Written written;
  for (size_t p = 0; p < packed.size(); ++p) {
    // The byte after the end must stay.
    std::string payload(packed.bytes(p) + 1, '!');
    packed.write(p, payload.data());
    REQUIRE(payload.back() == '!');
    payload.pop_back();
    const auto commands = parse(payload);
    CHECK(commands.size() == packed.commands(p));
    for (const auto& command : commands) {
      ++written.commands;
      CHECK(command[0] == "MSET");
      CHECK(command.size() % 2 == 1);
      CHECK(command.size() <= 1 + 2 * PackedPages::kMostPages);
      for (size_t a = 1; a < command.size(); a += 2) {
        CHECK(written.pages.emplace(command[a], command[a + 1]).second);
      }
    }
  }
  return written;
}

void check_pages(const PagePlace& place, const Rows& rows, const std::vector<uint32_t>& only = {}) {
  std::map<std::string, std::string> expected;
  const StoreNames names(place.shards, place.number);
  char name[StoreNames::kLongestPage];
  for (size_t i = 0; i < rows.keys.size(); ++i) {
    const uint32_t shard = store_shard_of(rows.keys[i], place.shards);
    if (!only.empty() && std::find(only.begin(), only.end(), shard) == only.end()) continue;
    const size_t length = names.page(shard, place.table, page_of(rows.keys[i], place.pages), name);
    expected[std::string(name, length)] += record(rows, i, 5);
  }
  CHECK(pack(place, rows, only).pages == expected);
}

}  // namespace

TEST_CASE("pages: every row is in the page of its key, in few commands") {
  for (const size_t pages : {1, 7, 300, 5000, 1 << 30}) {
    check_pages({4, 1234, 2, pages}, random_rows(5000, 12));
  }
  check_pages({1, 0, 0, 3}, random_rows(1, 64));
  check_pages({4096, 9, 63, 100}, random_rows(20000, 8));
  CHECK(pack({4, 1, 0, 9}, random_rows(0, 8)).commands == 0);
  CHECK(pack({1, 1, 0, 1 << 20}, random_rows(2000, 8)).commands == 8);
  // 80 KiB in a page.
  CHECK(pack({1, 1, 0, 16}, random_rows(16 * 80, 1008)).commands == 4);
}

TEST_CASE("pages: only the shards that are asked for") {
  const Rows rows = random_rows(3000, 4);
  check_pages({8, 1, 0, 10}, rows, {1, 6});
  CHECK(error_code([&] { pack({8, 1, 0, 10}, rows, {8}); }) == Code::kInvalidArgument);
}

TEST_CASE("pages: places that cannot be are refused") {
  const Rows rows = random_rows(1, 4);
  CHECK(error_code([&] { pack({8, 1, 0, 0}, rows); }) == Code::kInvalidArgument);
  CHECK(error_code([&] { pack({9, 1, 0, 1}, rows); }) == Code::kInvalidArgument);
  CHECK(error_code([&] { pack({8, 1, 4096, 1}, rows); }) == Code::kInvalidArgument);
}

TEST_CASE("pages: digests of pages are those of their rows") {
  const PagePlace place = {4, 3, 1, 50};
  const Rows rows = random_rows(2000, 20);
  std::vector<uint64_t> of_rows(12);
  add_shard_digests(rows.keys.data(), rows.bytes.data(), 2000, 20, 4, of_rows.data());
  const Written written = pack(place, rows);
  const StoreNames names(4, 3);
  uint64_t total = 0;
  for (uint32_t shard = 0; shard < 4; ++shard) {
    Sums sums = {};
    // Two calls with 20 and 30 pages.
    for (const uint64_t first : {0, 20}) {
      std::vector<const char*> values;
      std::vector<size_t> lengths;
      for (uint64_t page = first; page < (first == 0 ? 20u : 50u); ++page) {
        char name[StoreNames::kLongestPage];
        const auto found = written.pages.find({name, names.page(shard, 1, page, name)});
        values.push_back(found == written.pages.end() ? nullptr : found->second.data());
        lengths.push_back(found == written.pages.end() ? 0 : found->second.size());
      }
      add_page_digests(place, shard, first, values.data(), lengths.data(), values.size(), 20,
                       sums.data());
    }
    CHECK(std::equal(sums.begin(), sums.end(), of_rows.begin() + 3 * shard));
    total += sums[0];
  }
  CHECK(total == 2000);
}

TEST_CASE("pages: damaged pages are found, tombstones do not count") {
  const PagePlace place = {2, 3, 1, 2};
  const Rows rows = random_rows(200, 8);
  size_t i = 0, j, other;
  const auto page_at = [&](size_t row) {
    return Page(store_shard_of(rows.keys[row], 2), page_of(rows.keys[row], 2));
  };
  for (j = 1; page_at(j) != page_at(i);) ++j;
  for (other = 1; page_at(other) == page_at(i);) ++other;
  const auto digest = [&](const std::string& page) {
    Sums sums = {};
    const char* values[] = {nullptr, page.data()};
    const size_t lengths[] = {0, page.size()};
    add_page_digests(place, page_at(i).first, page_at(i).second - 1, values, lengths, 2, 8,
                     sums.data());
    return sums;
  };
  const std::string good = record(rows, i, 5);
  CHECK(digest(good)[0] == 1);
  CHECK(digest(record(rows, i, 6)) == digest(good));  // versions are left out
  CHECK(digest(good + record(rows, j, 5))[0] == 2);
  CHECK(digest(good + record(rows, j, 5 | kTombstone)) == digest(good));
  CHECK(digest("") == Sums{});
  const auto code = [&](const std::string& page) { return error_code([&] { digest(page); }); };
  CHECK(code(good.substr(1)) == Code::kDataLoss);
  CHECK(code(good + "x") == Code::kDataLoss);
  CHECK(code(good + record(rows, other, 5)) == Code::kDataLoss);
  CHECK(code(good + record(rows, j, 5) + good) == Code::kDataLoss);
  CHECK(code(good + record(rows, i, 5 | kTombstone)) == Code::kDataLoss);
}

}  // namespace hotrow
