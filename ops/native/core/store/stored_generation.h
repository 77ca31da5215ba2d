// The parts of a generation's control record (docs/formats.md, "Control records") that readers
// need.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/store/row_reader.h"

namespace hotrow {

struct StoredGeneration {
  std::string name;
  uint64_t number = 0;
  size_t shards = 0;  // V
  bool complete = false;
  RowVersion row_version = 0;  // of its rows as exported
  std::vector<StoredTable> tables;
};

// text: the record's JSON. Fails with DataLoss when it is not one.
StoredGeneration parse_generation(const std::string& text);

}  // namespace hotrow
