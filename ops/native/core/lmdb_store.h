// The embedded store: rows in LMDB. This library is the only one in the process that opens it.
#pragma once

#include <lmdb.h>

#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "core/row_source.h"

namespace hotrow {

// An LMDB environment. LMDB forbids a process to open one twice, so open() hands out the one
// that is open already (by device and inode); it closes with its last user.
class LmdbEnvironment {
 public:
  // directory: made when `create` and absent, else NotFound. Reading works on read-only disks.
  static std::shared_ptr<LmdbEnvironment> open(const std::string& directory, bool create);
  ~LmdbEnvironment();
  LmdbEnvironment(const LmdbEnvironment&) = delete;
  LmdbEnvironment& operator=(const LmdbEnvironment&) = delete;

  MDB_env* get() const { return env_; }
  const std::string& directory() const { return directory_; }
  bool writable() const { return writable_; }

  // The handle of a table of a generation. Opens it in a transaction of its own.
  MDB_dbi open_table(const std::string& generation, const std::string& table, bool create);
  // The tables of all generations, with their rows.
  struct Entry {
    std::string generation;
    std::string table;
    size_t rows;
  };
  std::vector<Entry> list();
  // Grows the map so that `bytes` more fit; waits for the read transactions of this process.
  void reserve(size_t bytes);
  // Takes over the map size that another process has set, and waits likewise.
  void adopt_map_size();
  // Held shared by every transaction: LMDB forbids to remap under one.
  std::shared_mutex& map_mutex() { return map_mutex_; }

 private:
  LmdbEnvironment() = default;
  int open_with(unsigned mode);
  std::shared_mutex map_mutex_;
  MDB_env* env_ = nullptr;
  std::string directory_;
  bool writable_ = false;
};

// Writes the rows of one table of one generation.
class LmdbWriter {
 public:
  LmdbWriter(std::shared_ptr<LmdbEnvironment> env, std::string generation, std::string table,
             size_t width);
  // keys: (count); rows: (count, width). An existing key's row is replaced. One transaction.
  void put(const int64_t* keys, size_t count, const float* rows);

 private:
  std::shared_ptr<LmdbEnvironment> env_;
  std::string name_;
  size_t width_;
  MDB_dbi dbi_;
};

// Reads the rows of one table of one generation; an unknown key reads `default_value`.
class LmdbReader : public RowSource {
 public:
  // Fails with NotFound when the store has no such table or generation.
  LmdbReader(std::shared_ptr<LmdbEnvironment> env, std::string generation, std::string table,
             size_t width, float default_value);
  size_t width() const override { return width_; }
  size_t read(const int64_t* keys, size_t count, float* rows) const override;
  size_t size() const;
  // The rows after `after` in the order of their keys' bits; `from_start` begins at the first.
  // Returns how many of at most `count` were written.
  size_t scan(bool from_start, int64_t after, size_t count, int64_t* keys, float* rows) const;
  void digest(uint64_t digest[2]) const;

 private:
  void check_row(const MDB_val& value, int64_t key) const;
  std::shared_ptr<LmdbEnvironment> env_;
  std::string name_;
  size_t width_;
  float default_value_;
  MDB_dbi dbi_;
};

}  // namespace hotrow
