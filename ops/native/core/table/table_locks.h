// The locks of all tables of a call.
#pragma once

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "core/table/table.h"

namespace hotrow {

// Taken in one order so that calls cannot wait in a circle.
class TableLocks {
 public:
  TableLocks(std::vector<Table*> tables, bool alone) {
    std::sort(tables.begin(), tables.end());
    for (Table* table : tables) {
      if (alone) {
        ++table->steps_waiting;
        alone_.emplace_back(table->mutex());
        --table->steps_waiting;
      } else {
        shared_.emplace_back(table->mutex());
      }
    }
  }

 private:
  std::vector<std::unique_lock<std::shared_mutex>> alone_;
  std::vector<std::shared_lock<std::shared_mutex>> shared_;
};

}  // namespace hotrow
