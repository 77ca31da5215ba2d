// Blocks of cuts as exporters write them (docs/formats.md, "Cuts").
#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/base/fingerprint.h"
#include "core/serving/cut_layer.h"
#include "tests/stored_rows.h"

namespace hotrow {

// The bytes of a cut's blocks.
class Blocks {
 public:
  Blocks(const std::vector<StoredTable>& tables, RowVersion version)
      : tables_(tables), version_(version) {}

  // Rows of keys [first, last), each `step`th; or tombstones.
  Blocks& add(size_t table, int64_t first, int64_t last, int64_t step = 1, bool gone = false) {
    std::string records;
    uint32_t count = 0;
    for (int64_t key = first; key < last; key += step, ++count) {
      const std::vector<std::byte> row = stored_row(tables_[table], table, key, version_);
      put(&records, key);
      put(&records, version_ | (gone ? kTombstone : 0));
      records.append(reinterpret_cast<const char*>(row.data()), row.size());
    }
    std::string number, rest;
    put(&number, static_cast<uint32_t>(table));
    put(&rest, version_);
    for (const uint32_t value :
         {uint32_t{7}, count, static_cast<uint32_t>(tables_[table].row_bytes()), uint32_t{0}}) {
      put(&rest, value);
    }
    rest += records;
    const int64_t ends[] = {0, static_cast<int64_t>(rest.size())};
    int64_t sum = 0;
    fingerprint64(number.data(), number.size(), rest.data(), ends, 1, &sum);
    bytes_ += "HRCB" + number;
    put(&bytes_, sum);
    bytes_ += rest;
    return *this;
  }

  const std::string& bytes() const { return bytes_; }
  std::shared_ptr<const CutLayer> layer(const std::string& path) const {
    std::ofstream(path, std::ios::binary) << bytes_;
    return std::make_shared<const CutLayer>(path, version_, tables_);
  }

 private:
  template <typename T>
  static void put(std::string* to, T value) {
    to->append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  std::vector<StoredTable> tables_;
  RowVersion version_;
  std::string bytes_;
};

}  // namespace hotrow
