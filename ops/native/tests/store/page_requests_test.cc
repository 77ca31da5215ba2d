#include "core/store/page_requests.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/store/store_layout.h"
#include "tests/error_code.h"

namespace hotrow {
namespace {

using PageState = PageRequests::PageState;

struct Asked {
  explicit Asked(std::vector<int64_t> wanted, size_t table = 0, size_t row_bytes = 8)
      : keys(std::move(wanted)),
        rows(keys.size() * row_bytes),
        versions(keys.size(), 99),
        states(keys.size(), ReadState::kFound) {
    request = {table, keys.data(), keys.size(), rows.data(), versions.data(), states.data()};
  }
  std::vector<int64_t> keys;
  std::vector<std::byte> rows;
  std::vector<RowVersion> versions;
  std::vector<ReadState> states;
  ReadRequest request;
};

std::vector<StoredTable> tables(uint64_t pages) {
  std::vector<StoredTable> all(2);
  for (StoredTable& table : all) {
    table.width = 2;
    table.pages = pages;
  }
  return all;
}

std::string record(int64_t key, RowVersion version, const char* row) {
  std::string text(24, '\0');
  std::memcpy(text.data(), &key, 8);
  std::memcpy(text.data() + 8, &version, 8);
  std::memcpy(text.data() + 16, row, 8);
  return text;
}

std::vector<ReadState> states(std::initializer_list<ReadState> list) { return list; }

constexpr ReadState U = ReadState::kUnknown, F = ReadState::kFound, X = ReadState::kFailed;

}  // namespace

TEST_CASE("page_requests: keys of one page ask for it once, tables have their own") {
  const std::vector<StoredTable> two = tables(1);
  Asked a({1, 2, 3}), b({1, 2}, 1);
  const ReadRequest requests[] = {a.request, b.request, a.request};
  PageRequests pages(two, 1, requests, 3);
  REQUIRE(pages.size() == 2);
  CHECK(pages.keys() == 8);
  CHECK(pages.table(0) == 0);
  CHECK(pages.table(1) == 1);
  CHECK(a.states == states({X, X, X}));
  CHECK(a.versions == std::vector<RowVersion>{0, 0, 0});
  const std::string page = record(3, 7, "row of 3") + record(1, 5 | kTombstone, "xxxxxxxx");
  CHECK(pages.fill(0, page.data(), page.size()));
  CHECK(a.states == states({U, U, F}));
  CHECK(a.versions == std::vector<RowVersion>{5 | kTombstone, 0, 7});
  CHECK(std::memcmp(a.rows.data() + 16, "row of 3", 8) == 0);
  CHECK(b.states == states({X, X}));
  pages.miss(1);
  CHECK(pages.state(1) == PageState::kMissing);
  CHECK(b.states == states({X, X}));
  pages.settle(1, U);
  CHECK(b.states == states({U, U}));
}

TEST_CASE("page_requests: each key gets its row, whatever the page") {
  const std::vector<StoredTable> two = tables(50);
  std::vector<int64_t> keys;
  for (int64_t k = -1000; k < 1000; ++k) keys.push_back(k * 1000003);
  Asked a(keys);
  PageRequests pages(two, 8, &a.request, 1);
  CHECK(pages.size() <= 8 * 50);
  for (size_t p = 0; p < pages.size(); ++p) {
    std::string bytes;
    for (const int64_t key : keys) {
      if (store_shard_of(key, 8) != pages.shard(p) || page_of(key, 50) != pages.number(p)) continue;
      bytes += record(key, 1, reinterpret_cast<const char*>(&key));
    }
    CHECK(!bytes.empty());
    CHECK(pages.fill(p, bytes.data(), bytes.size()));
  }
  CHECK(std::memcmp(a.rows.data(), keys.data(), 8 * keys.size()) == 0);
  for (const ReadState state : a.states) CHECK(state == F);
}

TEST_CASE("page_requests: a page that is no whole number of records answers nothing") {
  const std::vector<StoredTable> two = tables(1);
  for (size_t bytes = 0; bytes < 72; ++bytes) {
    Asked a({1});
    PageRequests pages(two, 1, &a.request, 1);
    const std::string page =
        (record(1, 1, "12345678") + record(2, 1, "12345678") + record(3, 1, "12345678"))
            .substr(0, bytes);
    const std::vector<char> exact(page.begin(), page.end());  // for ASan
    CHECK(pages.fill(0, exact.data(), bytes) == (bytes % 24 == 0));
    CHECK(a.states[0] == (bytes % 24 != 0 ? X : bytes == 0 ? U : F));
    CHECK(pages.state(0) == PageState::kDone);
  }
}

TEST_CASE("page_requests: requests without keys, without versions, of a table that is not there") {
  const std::vector<StoredTable> two = tables(3);
  Asked none({}), one({1});
  one.request.versions = nullptr;
  const ReadRequest requests[] = {none.request, one.request, none.request};
  PageRequests pages(two, 1, requests, 3);
  CHECK(pages.size() == 1);
  const std::string page = record(1, 7, "abcdefgh");
  CHECK(pages.fill(0, page.data(), page.size()));
  CHECK(one.states == states({F}));
  CHECK(one.versions[0] == 99);
  one.request.table = 2;
  CHECK(error_code([&] { PageRequests(two, 1, &one.request, 1); }) == Code::kInvalidArgument);
}

}  // namespace hotrow
