// The distinct pages that a read needs, and the keys that wait for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/store/row_reader.h"

namespace hotrow {

// N keys of all requests, in pages. Page numbers below are indexes in [0, size()).
class PageRequests {
 public:
  enum class PageState : uint8_t { kAwaited, kMissing, kDone };

  // Sets all states to kFailed until their pages are read. Fails with InvalidArgument for a table
  // that does not exist.
  PageRequests(const std::vector<StoredTable>& tables, size_t shards, const ReadRequest* requests,
               size_t count);

  size_t size() const { return pages_.size(); }
  uint32_t table(size_t page) const { return pages_[page].table; }
  uint32_t shard(size_t page) const { return pages_[page].shard; }
  uint64_t number(size_t page) const { return pages_[page].number; }
  PageState state(size_t page) const { return pages_[page].state; }

  // Answers the page's keys from its bytes. False: they are not a whole number of records.
  bool fill(size_t page, const char* data, size_t bytes) noexcept;
  // Marks the page as absent; its keys wait for `settle`.
  void miss(size_t page) noexcept { pages_[page].state = PageState::kMissing; }
  // Ends an absent page: its keys become unknown, or failed.
  void settle(size_t page, ReadState state) noexcept;

  // Keys that were found.
  size_t found() const { return found_; }
  size_t keys() const { return next_.size(); }

 private:
  struct Page {
    uint64_t number;
    uint32_t table, shard;
    uint32_t head;  // the last key of the chain in next_
    PageState state;
  };
  const ReadRequest& request_of(uint32_t key, uint32_t* index) const noexcept;

  const std::vector<StoredTable>& tables_;
  const ReadRequest* requests_;
  std::vector<uint32_t> firsts_;  // number of each request's first key
  std::vector<uint32_t> next_;    // chain of keys of a page; kNone ends it
  std::vector<Page> pages_;
  size_t found_ = 0;
};

}  // namespace hotrow
