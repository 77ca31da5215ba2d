// Rows of a generation in memory: for stores that fit into RAM, and as the reference for other
// readers.
#pragma once

#include <memory>
#include <shared_mutex>
#include <vector>

#include "core/base/anonymous_array.h"
#include "core/store/row_reader.h"

namespace hotrow {

// A reader whose rows come from `put`. A row of a table has B bytes.
class MemoryReader : public RowReader {
 public:
  // tables: with their names, widths and types. Fails with InvalidArgument for a width of 0.
  explicit MemoryReader(std::vector<StoredTable> tables);
  ~MemoryReader() override;

  const std::vector<StoredTable>& tables() const override { return tables_; }
  ReadFailure read(const ReadRequest* requests, size_t count, Deadline deadline) const override;

  // Makes room for `rows` rows in total.
  void reserve(size_t table, size_t rows);
  // keys: (count). rows: (count, B); those of tombstones are not read. versions: (count), or null:
  // all 0. A row older than the present one is skipped; of duplicate keys the newest row wins.
  // Readers see each call's rows of a table together.
  void put(size_t table, const int64_t* keys, size_t count, const std::byte* rows,
           const RowVersion* versions);
  // The number of rows, without tombstones.
  size_t rows(size_t table) const;

 private:
  class Records;
  Records& records(size_t table) const;

  std::vector<StoredTable> tables_;
  std::vector<std::unique_ptr<Records>> records_;
};

}  // namespace hotrow
