#include "core/lmdb/records.h"

#include <cstring>

namespace hotrow {
namespace {

const std::string kNumber = "number";

// The value is valid as long as the text lives.
MDB_val value_of(const std::string& text) { return {text.size(), const_cast<char*>(text.data())}; }

std::string text_of(const MDB_val& value) {
  return std::string(static_cast<const char*>(value.mv_data), value.mv_size);
}

}  // namespace

std::optional<std::string> LmdbRecords::get(const std::string& name) const {
  MDB_dbi records;
  if (!env_->open_records(false, &records)) return std::nullopt;
  LmdbEnvironment::Read txn(*env_);
  MDB_val key = value_of(name), value;
  const int rc = mdb_get(txn.get(), records, &key, &value);
  if (rc == MDB_NOTFOUND) return std::nullopt;
  check_lmdb(rc, "store " + env_->directory() + ", record " + name);
  return text_of(value);
}

bool LmdbRecords::swap(const std::vector<Change>& changes) {
  MDB_dbi records;
  env_->open_records(true, &records);
  size_t bytes = 0;
  for (const Change& change : changes) {
    bytes += change.name.size() + (change.text ? change.text->size() : 0);
  }
  env_->reserve(bytes, false);
  bool same = false;
  env_->write("store " + env_->directory() + ", control records", [&](MDB_txn* txn) {
    same = true;
    for (const Change& change : changes) {
      MDB_val key = value_of(change.name), value;
      const int rc = mdb_get(txn, records, &key, &value);
      if (rc != MDB_SUCCESS && rc != MDB_NOTFOUND) return rc;
      same = same && (rc == MDB_NOTFOUND ? !change.expected
                                         : change.expected && text_of(value) == *change.expected);
    }
    if (!same) return MDB_SUCCESS;
    for (const Change& change : changes) {
      MDB_val key = value_of(change.name), value;
      int rc;
      if (change.text) {
        value = value_of(*change.text);
        rc = mdb_put(txn, records, &key, &value, 0);
      } else {
        rc = mdb_del(txn, records, &key, nullptr);
        if (rc == MDB_NOTFOUND) rc = MDB_SUCCESS;
      }
      if (rc != MDB_SUCCESS) return rc;
    }
    return MDB_SUCCESS;
  });
  return same;
}

void LmdbRecords::list(const std::string& prefix,
                       const std::function<void(const std::string&)>& visit) const {
  MDB_dbi records;
  if (!env_->open_records(false, &records)) return;
  LmdbEnvironment::Read txn(*env_);
  MDB_cursor* cursor = nullptr;
  check_lmdb(mdb_cursor_open(txn.get(), records, &cursor), "store " + env_->directory());
  std::unique_ptr<MDB_cursor, decltype(&mdb_cursor_close)> guard(cursor, mdb_cursor_close);
  MDB_val key = value_of(prefix), value;
  int rc = mdb_cursor_get(cursor, &key, &value, prefix.empty() ? MDB_FIRST : MDB_SET_RANGE);
  for (; rc == MDB_SUCCESS; rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
    const std::string name = text_of(key);
    if (name.compare(0, prefix.size(), prefix) != 0) return;
    visit(name);
  }
  if (rc != MDB_NOTFOUND) check_lmdb(rc, "store " + env_->directory());
}

uint64_t LmdbRecords::next_number() {
  MDB_dbi records;
  env_->open_records(true, &records);
  uint64_t number = 0;
  env_->write("store " + env_->directory(), [&](MDB_txn* txn) {
    MDB_val key = value_of(kNumber), value;
    const int rc = mdb_get(txn, records, &key, &value);
    if (rc != MDB_SUCCESS && rc != MDB_NOTFOUND) return rc;
    number = rc == MDB_NOTFOUND ? 1 : std::strtoull(text_of(value).c_str(), nullptr, 10) + 1;
    const std::string text = std::to_string(number);
    value = value_of(text);
    return mdb_put(txn, records, &key, &value, 0);
  });
  return number;
}

}  // namespace hotrow
