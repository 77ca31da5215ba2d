// Tables and rows for the tests of readers and caches.
#pragma once

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/store/memory_reader.h"
#include "core/store/row_reader.h"

namespace hotrow {

inline StoredTable stored_table(const char* name, size_t width, StoredType type, uint64_t rows) {
  StoredTable table;
  table.name = name;
  table.width = width;
  table.type = type;
  table.default_value = 0.25f;
  table.rows = rows;
  return table;
}

// The weights of a key in some version: they differ in all of table, key, version and place.
inline std::vector<float> weights_of(size_t table, int64_t key, RowVersion version, size_t width) {
  std::vector<float> weights(width);
  for (size_t j = 0; j < width; ++j) {
    const uint64_t mixed =
        combine64(combine64(table, static_cast<uint64_t>(key)), combine64(version, j));
    weights[j] = static_cast<float>(static_cast<int64_t>(mixed >> 40) - (1 << 23)) / (1 << 20);
  }
  return weights;
}

// The same as stored.
inline std::vector<std::byte> stored_row(const StoredTable& table, size_t number, int64_t key,
                                         RowVersion version) {
  std::vector<std::byte> row(table.row_bytes());
  encode_row(table.type, weights_of(number, key, version, table.width).data(), table.width,
             row.data());
  return row;
}

// The row that a reader returns: encoded and decoded.
inline std::vector<float> served_row(const StoredTable& table, size_t number, int64_t key,
                                     RowVersion version) {
  std::vector<float> weights(table.width);
  decode_row(table.type, stored_row(table, number, key, version).data(), table.width,
             weights.data());
  return weights;
}

// Puts keys [first, last) of a table into the reader.
inline void put_rows(MemoryReader& reader, size_t number, int64_t first, int64_t last,
                     RowVersion version) {
  for (int64_t key = first; key < last; ++key) {
    const std::vector<std::byte> row = stored_row(reader.tables()[number], number, key, version);
    reader.put(number, &key, 1, row.data(), &version);
  }
}

inline Deadline in_milliseconds(int milliseconds) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}
inline Deadline never() { return Deadline::max(); }

}  // namespace hotrow
