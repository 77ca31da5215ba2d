#include "core/store/page_requests.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/hash.h"
#include "core/base/status.h"
#include "core/store/store_layout.h"

namespace hotrow {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

}  // namespace

PageRequests::PageRequests(const std::vector<StoredTable>& tables, size_t shards,
                           const ReadRequest* requests, size_t count)
    : tables_(tables), requests_(requests) {
  size_t keys = 0;
  for (size_t r = 0; r < count; ++r) {
    if (requests[r].table >= tables.size()) {
      fail(Code::kInvalidArgument, "table number %zu of a generation with %zu tables",
           requests[r].table, tables.size());
    }
    firsts_.push_back(static_cast<uint32_t>(keys));
    keys += requests[r].count;
    if (keys >= kNone) fail(Code::kInvalidArgument, "%zu keys in one read; at most 2^32 - 2", keys);
    std::fill_n(requests[r].states, requests[r].count, ReadState::kFailed);
    if (requests[r].versions != nullptr) std::fill_n(requests[r].versions, requests[r].count, 0);
  }
  next_.resize(keys);
  pages_.reserve(keys);
  // Open addressing over the pages, at most half full.
  size_t slots = 16;
  while (slots < 2 * keys) slots *= 2;
  std::vector<uint32_t> index(slots, kNone);
  uint32_t key = 0;
  for (uint32_t r = 0; r < count; ++r) {
    const auto table = static_cast<uint32_t>(requests[r].table);
    const uint64_t pages = tables[table].pages;
    for (size_t i = 0; i < requests[r].count; ++i, ++key) {
      const int64_t wanted = requests[r].keys[i];
      const uint32_t shard = store_shard_of(wanted, shards);
      const uint64_t number = page_of(wanted, pages);
      size_t at = mix64(number ^ uint64_t{shard} << 48 ^ uint64_t{table} << 36) & (slots - 1);
      for (; index[at] != kNone; at = (at + 1) & (slots - 1)) {
        const Page& page = pages_[index[at]];
        if (page.number == number && page.shard == shard && page.table == table) break;
      }
      if (index[at] == kNone) {
        index[at] = static_cast<uint32_t>(pages_.size());
        pages_.push_back({number, table, shard, kNone, PageState::kAwaited});
      }
      Page& page = pages_[index[at]];
      next_[key] = page.head;
      page.head = key;
    }
  }
}

const ReadRequest& PageRequests::request_of(uint32_t key, uint32_t* index) const noexcept {
  const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), key);
  *index = key - *(after - 1);
  return requests_[after - 1 - firsts_.begin()];
}

bool PageRequests::fill(size_t number, const char* data, size_t bytes) noexcept {
  Page& page = pages_[number];
  if (page.state == PageState::kDone) return true;
  page.state = PageState::kDone;
  const size_t row_bytes = tables_[page.table].row_bytes();
  const size_t record = kRecordHead + row_bytes;
  if (bytes % record != 0) return false;
  const char* const end = data + bytes;
  for (uint32_t key = page.head; key != kNone; key = next_[key]) {
    uint32_t i;
    const ReadRequest& request = request_of(key, &i);
    const int64_t wanted = request.keys[i];
    request.states[i] = ReadState::kUnknown;
    for (const char* at = data; at < end; at += record) {
      int64_t found;
      std::memcpy(&found, at, sizeof(found));
      if (found != wanted) continue;
      RowVersion version;
      std::memcpy(&version, at + sizeof(found), sizeof(version));
      if (request.versions != nullptr) request.versions[i] = version;
      if ((version & kTombstone) != 0) break;
      std::memcpy(request.rows + i * row_bytes, at + kRecordHead, row_bytes);
      request.states[i] = ReadState::kFound;
      ++found_;
      break;
    }
  }
  return true;
}

void PageRequests::settle(size_t number, ReadState state) noexcept {
  Page& page = pages_[number];
  page.state = PageState::kDone;
  for (uint32_t key = page.head; key != kNone; key = next_[key]) {
    uint32_t i;
    request_of(key, &i).states[i] = state;
  }
}

}  // namespace hotrow
