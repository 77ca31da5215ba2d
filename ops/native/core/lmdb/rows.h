// Rows of the embedded store (docs/formats.md, "In LMDB"). B bytes of a row.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/lmdb/environment.h"
#include "core/store/row_reader.h"
#include "core/store/stored_generation.h"

namespace hotrow {

// Writes the rows of one table of one generation.
class LmdbWriter {
 public:
  // Creates the store and the table if they are absent.
  LmdbWriter(const std::string& directory, const std::string& generation, const std::string& table,
             size_t row_bytes);
  size_t row_bytes() const { return row_bytes_; }
  // keys: (count), distinct; rows: (count, B). Replaces existing rows. One transaction.
  void write(const int64_t* keys, size_t count, const std::byte* rows, RowVersion version);
  // The same, but replaces only older rows. versions: (count); a tombstone's row is ignored.
  // Returns how many were written.
  size_t put(const int64_t* keys, size_t count, const std::byte* rows, const RowVersion* versions);

 private:
  LmdbTable table_;
  size_t row_bytes_;
};

// Blocks of bytes by number, beside the rows of a generation: blocks that wait for a commit.
class LmdbBlocks {
 public:
  // name: of a table that no model has. Makes the store and the table when they are absent.
  LmdbBlocks(const std::string& directory, const std::string& generation, const std::string& name);
  // bytes[i]: at numbers[i]. One transaction.
  void put(const std::vector<int64_t>& numbers, const std::vector<std::string_view>& bytes);
  // None: the number is absent.
  std::optional<std::string> get(int64_t number) const;

 private:
  LmdbTable table_;
};

// Reads the rows of a generation.
class LmdbReader : public RowReader {
 public:
  // Fails with NotFound when the store has no such generation, or when `complete` is set and it is
  // not complete; with DataLoss when a table has fewer rows than were exported.
  LmdbReader(const std::string& directory, const std::string& generation, bool complete);

  const std::vector<StoredTable>& tables() const override { return generation_.tables; }
  RowVersion exported() const { return generation_.row_version; }
  // A read of LMDB does not wait, so it ignores the deadline.
  ReadFailure read(const ReadRequest* requests, size_t count, Deadline deadline) const override;

  // Entries of a table, tombstones too.
  size_t size(size_t table) const;
  // The entries after the key `after` in the order of their bits; from_start begins at the first.
  // rows: (count, B), or null. Returns how many of at most `count` were written.
  size_t scan(size_t table, bool from_start, int64_t after, size_t count, int64_t* keys,
              std::byte* rows, RowVersion* versions) const;
  // Rows and digest of each virtual shard; digests: (V, 3).
  void digests(size_t table, uint64_t* digests) const;
  size_t shards() const { return generation_.shards; }

 private:
  // Whether all rows of the generation are present, in a transaction.
  bool is_whole(MDB_txn* txn) const;
  void check_entry(size_t table, const MDB_val& value, int64_t key) const;

  std::string directory_;
  bool complete_;
  StoredGeneration generation_;
  std::vector<std::unique_ptr<LmdbTable>> open_;
};

}  // namespace hotrow
