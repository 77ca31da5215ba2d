#include "core/table/table_changes.h"

#include <cstring>
#include <mutex>
#include <typeinfo>

#include "core/table/ram_tier.h"

namespace hotrow {

TableChanges::TableChanges(const std::vector<Table*>& tables) : tables_(&tables) {
  for (Table* table : tables) table->begin_changes();
}

TableChanges::~TableChanges() {
  if (tables_ == nullptr) return;
  for (Table* table : *tables_) table->undo_changes();
}

void TableChanges::keep() noexcept {
  if (tables_ == nullptr) return;
  for (Table* table : *tables_) table->keep_changes();
  tables_ = nullptr;
}

void Table::begin_changes() {
  for (Partition& partition : partitions_) partition.begin_changes();
}

void Table::keep_changes() noexcept {
  for (Partition& partition : partitions_) partition.keep_changes();
}

void Table::undo_changes() noexcept {
  bool any = false;
  for (Partition& partition : partitions_) {
    const auto lock = lock_beside_snapshot(partition);
    any |= partition.undo_changes([&](uint64_t hash, int64_t key) {
      if (ram_tier_ != nullptr) ram_tier_->forget(hash, key);
    });
  }
  if (any) ++epoch_;
}

void rethrow_with_table(const Table& table) {
  try {
    throw;
  } catch (const OutOfMemory& error) {
    fail(Code::kResourceExhausted,
         "table %s: %s; its rows and their index take %zu bytes. The step failed and rows stay as "
         "they were. Write a checkpoint, then use smaller batches, more ranks, `admission`, "
         "`expiry`, a cache with `disk`, or more memory",
         table.name().c_str(), error.what(), table.memory_in_lock());
  } catch (const std::bad_alloc&) {
    fail(Code::kResourceExhausted,
         "table %s: no memory for a step; its rows and their index take %zu bytes. The step failed "
         "and rows stay as they were. Write a checkpoint, then use smaller batches, more ranks, "
         "`admission`, `expiry`, a cache with `disk`, or more memory",
         table.name().c_str(), table.memory_in_lock());
  } catch (const Error& error) {
    // Errors that ranks agreed on, and those with a table's name, stay as they are.
    if (error.code() != Code::kResourceExhausted || typeid(error) != typeid(Error) ||
        std::strncmp(error.what(), "table ", 6) == 0) {
      throw;
    }
    fail(error.code(), "table %s: %s; rows stay as they were", table.name().c_str(), error.what());
  }
}

}  // namespace hotrow
