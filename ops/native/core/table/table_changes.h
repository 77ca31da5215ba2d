// What a step did to its tables so far, and how to take it back.
#pragma once

#include <exception>
#include <new>
#include <vector>

#include "core/base/status.h"
#include "core/table/table.h"

namespace hotrow {

// From construction on, the rows that a lookup inserts and the occurrences that it counts can be
// taken back. The destructor takes them back, unless `keep` was called: a step that fails leaves
// its tables as they were. In the tables' locks; the tables must outlive this.
class TableChanges {
 public:
  explicit TableChanges(const std::vector<Table*>& tables);
  ~TableChanges();
  TableChanges(const TableChanges&) = delete;
  // Call it before the first row is updated, which cannot be taken back.
  void keep() noexcept;

 private:
  const std::vector<Table*>* tables_;
};

// Throws the exception in flight again. Without memory or room on a disk, the error names the
// table, what it takes, and what to do.
[[noreturn]] void rethrow_with_table(const Table& table);

// Runs a part of a step that concerns one table.
template <typename Part>
void in_table(const Table& table, Part&& part) {
  try {
    part();
  } catch (...) {
    rethrow_with_table(table);
  }
}

}  // namespace hotrow
