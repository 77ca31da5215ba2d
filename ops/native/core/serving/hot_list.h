// The most used keys of a version, in order; they fill a cache before the version serves
// (docs/formats.md, "Hot rows of a version").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hotrow {

struct HotList {
  std::vector<int64_t> keys;     // the most used first
  std::vector<uint32_t> tables;  // of each key, its table's number
};

// Empty when there is no such file. tables: how many there are. Fails with DataLoss.
HotList read_hot_list(const std::string& path, size_t tables);

}  // namespace hotrow
