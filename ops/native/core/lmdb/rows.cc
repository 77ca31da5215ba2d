#include "core/lmdb/rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/digest.h"
#include "core/base/status.h"
#include "core/lmdb/records.h"
#include "core/store/store_layout.h"

namespace hotrow {
namespace {

constexpr size_t kVersionBytes = sizeof(RowVersion);
// LMDB's overhead for each entry.
constexpr size_t kEntryBytes = 32;

// The order of the B-tree, so that pages are written once.
std::vector<size_t> order_of(const int64_t* keys, size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return static_cast<uint64_t>(keys[a]) < static_cast<uint64_t>(keys[b]);
  });
  return order;
}

RowVersion version_of(const MDB_val& value) {
  RowVersion version;
  std::memcpy(&version, value.mv_data, sizeof(version));
  return version;
}

// Puts `version | row` at a key. row: null for a tombstone.
int put_entry(MDB_txn* txn, MDB_dbi dbi, int64_t key, const std::byte* row, size_t row_bytes,
              RowVersion version) {
  MDB_val k{sizeof(key), &key}, v{kVersionBytes + row_bytes, nullptr};
  const int rc = mdb_put(txn, dbi, &k, &v, MDB_RESERVE);
  if (rc != MDB_SUCCESS) return rc;
  auto* out = static_cast<std::byte*>(v.mv_data);
  std::memcpy(out, &version, sizeof(version));
  if (row != nullptr) {
    std::memcpy(out + kVersionBytes, row, row_bytes);
  } else {
    std::memset(out + kVersionBytes, 0, row_bytes);
  }
  return MDB_SUCCESS;
}

}  // namespace

LmdbWriter::LmdbWriter(const std::string& directory, const std::string& generation,
                       const std::string& table, size_t row_bytes)
    : table_(LmdbEnvironment::open(directory, true), generation, table, true),
      row_bytes_(row_bytes) {}

void LmdbWriter::write(const int64_t* keys, size_t count, const std::byte* rows,
                       RowVersion version) {
  table_.env().reserve(count * (kVersionBytes + row_bytes_ + kEntryBytes), false);
  const std::vector<size_t> order = order_of(keys, count);
  table_.env().write(table_.place(), [&](MDB_txn* txn) {
    for (size_t i : order) {
      const int rc =
          put_entry(txn, table_.dbi(), keys[i], rows + i * row_bytes_, row_bytes_, version);
      if (rc != MDB_SUCCESS) return rc;
    }
    return MDB_SUCCESS;
  });
}

size_t LmdbWriter::put(const int64_t* keys, size_t count, const std::byte* rows,
                       const RowVersion* versions) {
  table_.env().reserve(count * (kVersionBytes + row_bytes_ + kEntryBytes), false);
  const std::vector<size_t> order = order_of(keys, count);
  size_t written = 0;
  table_.env().write(table_.place(), [&](MDB_txn* txn) {
    written = 0;  // reset when the transaction starts over
    for (size_t i : order) {
      int64_t key = keys[i];
      MDB_val k{sizeof(key), &key}, v;
      int rc = mdb_get(txn, table_.dbi(), &k, &v);
      if (rc != MDB_SUCCESS && rc != MDB_NOTFOUND) return rc;
      if (rc == MDB_SUCCESS && v.mv_size >= kVersionBytes &&
          (version_of(v) & ~kTombstone) >= (versions[i] & ~kTombstone)) {
        continue;
      }
      const bool gone = (versions[i] & kTombstone) != 0;
      rc = put_entry(txn, table_.dbi(), key, gone ? nullptr : rows + i * row_bytes_, row_bytes_,
                     versions[i]);
      if (rc != MDB_SUCCESS) return rc;
      ++written;
    }
    return MDB_SUCCESS;
  });
  return written;
}

LmdbBlocks::LmdbBlocks(const std::string& directory, const std::string& generation,
                       const std::string& name)
    : table_(LmdbEnvironment::open(directory, true), generation, name, true) {}

void LmdbBlocks::put(const std::vector<int64_t>& numbers,
                     const std::vector<std::string_view>& bytes) {
  size_t total = 0;
  for (const std::string_view block : bytes) total += block.size() + kEntryBytes;
  table_.env().reserve(total, false);
  table_.env().write(table_.place(), [&](MDB_txn* txn) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      int64_t number = numbers[i];
      MDB_val k{sizeof(number), &number}, v{bytes[i].size(), const_cast<char*>(bytes[i].data())};
      const int rc = mdb_put(txn, table_.dbi(), &k, &v, 0);
      if (rc != MDB_SUCCESS) return rc;
    }
    return MDB_SUCCESS;
  });
}

std::optional<std::string> LmdbBlocks::get(int64_t number) const {
  LmdbEnvironment::Read txn(table_.env());
  MDB_val k{sizeof(number), &number}, v;
  const int rc = mdb_get(txn.get(), table_.dbi(), &k, &v);
  if (rc == MDB_NOTFOUND) return std::nullopt;
  check_lmdb(rc, table_.place());
  return std::string(static_cast<const char*>(v.mv_data), v.mv_size);
}

LmdbReader::LmdbReader(const std::string& directory, const std::string& generation, bool complete)
    : directory_(directory), complete_(complete) {
  const LmdbRecords records(directory, false);
  const auto text = records.get("generation/" + generation);
  if (!text) {
    fail(Code::kNotFound,
         "store %s has no generation %s; was it deleted, or written by Hotrow 0.1? Export again",
         directory.c_str(), generation.c_str());
  }
  generation_ = parse_generation(*text);
  if (complete && !generation_.complete) {
    fail(Code::kNotFound, "store %s: generation %s is not complete", directory.c_str(),
         generation.c_str());
  }
  const auto env = LmdbEnvironment::open(directory, false);
  for (const StoredTable& table : generation_.tables) {
    open_.push_back(std::make_unique<LmdbTable>(env, generation, table.name, false));
  }
  for (size_t t = 0; complete && t < open_.size(); ++t) {
    const StoredTable& table = generation_.tables[t];
    if (size(t) < table.rows) {
      fail(Code::kDataLoss, "store %s, table %s: %zu rows; %llu were exported", directory.c_str(),
           table.name.c_str(), size(t), static_cast<unsigned long long>(table.rows));
    }
  }
}

void LmdbReader::check_entry(size_t table, const MDB_val& value, int64_t key) const {
  const size_t wanted = kVersionBytes + generation_.tables[table].row_bytes();
  if (value.mv_size == wanted) return;
  fail(Code::kDataLoss, "%s: the row of key %lld has %zu bytes; dim %zu needs %zu",
       open_[table]->place().c_str(), static_cast<long long>(key), value.mv_size,
       generation_.tables[table].width, wanted);
}

bool LmdbReader::is_whole(MDB_txn* txn) const {
  MDB_dbi records;
  if (!open_.front()->env().open_records(false, &records)) return false;
  std::string name = "whole/" + generation_.name;
  MDB_val key{name.size(), name.data()}, value;
  const int rc = mdb_get(txn, records, &key, &value);
  if (rc != MDB_NOTFOUND) check_lmdb(rc, "store " + directory_);
  return rc != MDB_NOTFOUND;
}

ReadFailure LmdbReader::read(const ReadRequest* requests, size_t count, Deadline) const {
  if (open_.empty()) return {};
  LmdbEnvironment::Read txn(open_.front()->env());
  bool whole = false;
  ReadFailure failure;
  for (size_t r = 0; r < count; ++r) {
    const ReadRequest& request = requests[r];
    const size_t row_bytes = generation_.tables[request.table].row_bytes();
    for (size_t i = 0; i < request.count; ++i) {
      int64_t key = request.keys[i];
      MDB_val k{sizeof(key), &key}, v;
      const int rc = mdb_get(txn.get(), open_[request.table]->dbi(), &k, &v);
      RowVersion version = 0;
      request.states[i] = ReadState::kUnknown;
      if (rc == MDB_NOTFOUND && complete_ && !whole && !(whole = is_whole(txn.get()))) {
        // The generation was deleted under this reader: it is unknown whether there was a row.
        request.states[i] = ReadState::kFailed;
        failure = {Code::kDataLoss, "store " + directory_ + ": generation " + generation_.name +
                                        " was deleted; export the model again"};
      } else if (rc != MDB_NOTFOUND) {
        check_lmdb(rc, open_[request.table]->place());
        check_entry(request.table, v, key);
        version = version_of(v);
        if ((version & kTombstone) == 0) {
          request.states[i] = ReadState::kFound;
          std::memcpy(request.rows + i * row_bytes,
                      static_cast<const std::byte*>(v.mv_data) + kVersionBytes, row_bytes);
        }
      }
      if (request.versions != nullptr) request.versions[i] = version;
    }
  }
  return failure;
}

size_t LmdbReader::size(size_t table) const {
  LmdbEnvironment::Read txn(open_[table]->env());
  MDB_stat stat;
  check_lmdb(mdb_stat(txn.get(), open_[table]->dbi(), &stat), open_[table]->place());
  return stat.ms_entries;
}

size_t LmdbReader::scan(size_t table, bool from_start, int64_t after, size_t count, int64_t* keys,
                        std::byte* rows, RowVersion* versions) const {
  if (count == 0) return 0;
  const LmdbTable& from = *open_[table];
  const size_t row_bytes = generation_.tables[table].row_bytes();
  LmdbEnvironment::Read txn(from.env());
  MDB_cursor* cursor = nullptr;
  check_lmdb(mdb_cursor_open(txn.get(), from.dbi(), &cursor), from.place());
  std::unique_ptr<MDB_cursor, decltype(&mdb_cursor_close)> guard(cursor, mdb_cursor_close);
  int64_t key = after;
  MDB_val k{sizeof(key), &key}, v;
  int rc = mdb_cursor_get(cursor, &k, &v, from_start ? MDB_FIRST : MDB_SET_RANGE);
  if (rc == MDB_SUCCESS && !from_start && std::memcmp(k.mv_data, &after, sizeof(after)) == 0) {
    rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
  }
  size_t done = 0;
  for (; rc == MDB_SUCCESS; rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT)) {
    std::memcpy(&keys[done], k.mv_data, sizeof(int64_t));
    check_entry(table, v, keys[done]);
    versions[done] = version_of(v);
    if (rows != nullptr) {
      std::memcpy(rows + done * row_bytes, static_cast<const std::byte*>(v.mv_data) + kVersionBytes,
                  row_bytes);
    }
    if (++done == count) return done;
  }
  if (rc != MDB_NOTFOUND) check_lmdb(rc, from.place());
  return done;
}

void LmdbReader::digests(size_t table, uint64_t* digests) const {
  const LmdbTable& from = *open_[table];
  const size_t row_bytes = generation_.tables[table].row_bytes();
  std::fill_n(digests, 3 * shards(), uint64_t{0});
  LmdbEnvironment::Read txn(from.env());
  MDB_cursor* cursor = nullptr;
  check_lmdb(mdb_cursor_open(txn.get(), from.dbi(), &cursor), from.place());
  std::unique_ptr<MDB_cursor, decltype(&mdb_cursor_close)> guard(cursor, mdb_cursor_close);
  MDB_val k, v;
  int rc;
  while ((rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT)) == MDB_SUCCESS) {
    int64_t key;
    std::memcpy(&key, k.mv_data, sizeof(key));
    check_entry(table, v, key);
    if ((version_of(v) & kTombstone) != 0) continue;
    uint64_t* shard = digests + size_t{3} * store_shard_of(key, shards());
    ++shard[0];
    add_row_digest(key, static_cast<const std::byte*>(v.mv_data) + kVersionBytes, row_bytes,
                   shard + 1);
  }
  if (rc != MDB_NOTFOUND) check_lmdb(rc, from.place());
}

}  // namespace hotrow
