// Pages of records for Redis (docs/formats.md, "Stored rows"): packs them for bulk writes, and
// checks them when they are read back. N rows of B bytes, V virtual shards, P pages in each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/store/row_reader.h"
#include "core/store/store_layout.h"

namespace hotrow {

// The place of a table's pages in the store.
struct PagePlace {
  size_t shards = 0;    // V
  uint64_t number = 0;  // of the generation
  size_t table = 0;     // its number in the generation
  uint64_t pages = 0;   // P
};

// Rows grouped by shard and page, as commands for Redis.
class PackedPages {
 public:
  // A command ends with the page that reaches one of these limits.
  static constexpr size_t kMostPages = 256;
  static constexpr size_t kMostBytes = 256 << 10;

  // keys: (count), distinct; rows: (count, row_bytes). Both must live until the last `write`, which
  // reads them. only: the shards whose rows are packed; empty: all.
  PackedPages(const PagePlace& place, const int64_t* keys, const std::byte* rows, size_t count,
              size_t row_bytes, RowVersion version, const std::vector<uint32_t>& only);

  // The shards that have rows, ascending.
  size_t size() const { return parts_.size(); }
  uint32_t shard(size_t part) const { return parts_[part].shard; }
  // MSET page value..., as bytes of the protocol; Redis answers each command with one +OK.
  size_t commands(size_t part) const { return parts_[part].commands; }
  size_t bytes(size_t part) const { return parts_[part].bytes; }
  // out: (bytes(part)).
  void write(size_t part, char* out) const;

 private:
  struct Row {
    uint64_t page;
    int32_t index;  // into keys and rows
  };
  struct Part {
    uint32_t shard;
    size_t first, last;  // of ordered_
    size_t commands = 0;
    size_t bytes = 0;
  };
  template <typename Visit>
  void visit_commands(const Part& part, Visit&& visit) const;
  size_t put_page_head(const Part& part, size_t first, size_t last, char* out) const;
  void measure(Part* part) const;

  StoreNames names_;
  PagePlace place_;
  const int64_t* keys_;
  const std::byte* rows_;
  size_t row_bytes_;
  RowVersion version_;
  std::vector<Row> ordered_;
  std::vector<Part> parts_;
};

// Adds the records of a shard's pages to sums: rows, and the two sums of their digest; tombstones
// are skipped. values: (count) pages from number `first_page` on; null: an absent one. Fails with
// DataLoss for a page that is not a whole number of records, and for records that belong elsewhere
// or occur twice.
void add_page_digests(const PagePlace& place, uint32_t shard, uint64_t first_page,
                      const char* const* values, const size_t* lengths, size_t count,
                      size_t row_bytes, uint64_t sums[3]);

// Adds (count) rows to the sums (shards, 3) of the shards of their keys.
void add_shard_digests(const int64_t* keys, const std::byte* rows, size_t count, size_t row_bytes,
                       size_t shards, uint64_t* sums);

}  // namespace hotrow
