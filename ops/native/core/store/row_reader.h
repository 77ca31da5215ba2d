// The source of served rows: memory, LMDB, Redis, or a cache in front of one of them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/store/row_codec.h"

namespace hotrow {

// A table of a generation, for its readers.
struct StoredTable {
  std::string name;
  size_t width = 0;  // D
  StoredType type = StoredType::kFloat32;
  float default_value = 0.0f;
  uint64_t rows = 0;          // as exported
  uint64_t pages = 0;         // in each virtual shard; of stores with pages
  uint64_t planned_rows = 0;  // the pages are laid out for so many, as it grows; 0: for `rows`

  // It may have so many before a trainer exports it anew (`_MOST_GROWTH` of its store writer).
  uint64_t most_rows() const { return std::max(rows, 4 * planned_rows); }

  size_t row_bytes() const { return hotrow::row_bytes(type, width); }
};

// The result of reading a key.
enum class ReadState : uint8_t {
  kUnknown = 0,  // the store has no row of it
  kFound = 1,
  kFailed = 2,  // not read: its part of the store could not be read in time
};

// epoch << 40 | seq of the cut that wrote a row.
using RowVersion = uint64_t;
constexpr int kSeqBits = 40;
constexpr RowVersion kTombstone = RowVersion{1} << 63;

// A read of keys of one table. Keys are distinct.
struct ReadRequest {
  size_t table = 0;               // index into RowReader::tables()
  const int64_t* keys = nullptr;  // (count)
  size_t count = 0;
  // Filled by read.
  std::byte* rows = nullptr;       // (count, row_bytes): of the keys found
  RowVersion* versions = nullptr;  // (count), or null; of an unknown key its tombstone's, or 0
  ReadState* states = nullptr;     // (count)
};

// Why keys failed.
struct ReadFailure {
  Code code = Code::kOk;  // kOk: no key failed
  std::string message;    // of the first
};

using Deadline = std::chrono::steady_clock::time_point;

// Reads stored rows. Safe from several threads.
class RowReader {
 public:
  virtual ~RowReader() = default;
  virtual const std::vector<StoredTable>& tables() const = 0;
  // Answers all requests together, with one round trip for each part of the store. Returns at
  // `deadline` at the latest, with the keys read so far; keys that could not be read are kFailed.
  virtual ReadFailure read(const ReadRequest* requests, size_t count, Deadline deadline) const = 0;
};

}  // namespace hotrow
