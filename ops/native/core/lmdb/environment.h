// An LMDB environment: the file of the embedded store. Only this library opens it in a process.
#pragma once

#include <lmdb.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

namespace hotrow {

// An LMDB environment. LMDB forbids a process to open one twice, so open() returns the environment
// that is already open; it closes with its last user.
class LmdbEnvironment {
 public:
  // directory: created if it is absent and `create` is set, else fails with NotFound. Reading works
  // on read-only disks.
  static std::shared_ptr<LmdbEnvironment> open(const std::string& directory, bool create);
  ~LmdbEnvironment();
  LmdbEnvironment(const LmdbEnvironment&) = delete;
  LmdbEnvironment& operator=(const LmdbEnvironment&) = delete;

  MDB_env* get() const { return env_; }
  const std::string& directory() const { return directory_; }
  // How long a write waits for others; for all users of the environment.
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }

  // The handle of a table of a generation; release it with close_table. Fails with NotFound unless
  // `create`.
  MDB_dbi open_table(const std::string& generation, const std::string& table, bool create);
  void close_table(const std::string& generation, const std::string& table);
  // Removes a table with its rows, at once. Fails with FailedPrecondition while this process has it
  // open.
  void drop_table(const std::string& generation, const std::string& table);
  // The database of control records; false: there is none yet.
  bool open_records(bool create, MDB_dbi* records);

  // Makes the map hold `bytes` more than are used; at least doubles it when `full`.
  void reserve(size_t bytes, bool full);

  // A read-only transaction for a scope.
  class Read {
   public:
    explicit Read(LmdbEnvironment& env);
    ~Read();
    Read(const Read&) = delete;
    Read& operator=(const Read&) = delete;
    MDB_txn* get() const { return txn_; }

   private:
    LmdbEnvironment& env_;
    std::shared_lock<std::shared_mutex> lock_;
    MDB_txn* txn_;
  };
  // Runs work(txn), an LMDB result, in a write transaction and commits. Grows the map and starts
  // over when it is full. Fails with Unavailable when others write for too long.
  void write(const std::string& what, const std::function<int(MDB_txn*)>& work);

 private:
  LmdbEnvironment() = default;
  int open_with(unsigned mode);
  int begin_read(MDB_txn** txn);
  int forget_dead_readers();
  mdb_filehandle_t file() const;
  bool is_current() const;
  std::pair<size_t, size_t> sizes() const;
  void check_size() const;
  void complete_file();
  std::shared_lock<std::shared_mutex> lock_map();
  void remap(size_t bytes);

  MDB_env* env_ = nullptr;
  std::string directory_;
  bool writable_ = false;
  std::timed_mutex writers_;
  std::atomic<std::chrono::milliseconds> patience_{std::chrono::seconds(30)};
  std::chrono::steady_clock::time_point checked_{};  // for dead readers; a writer's
  // Every transaction holds it shared: LMDB forbids remapping during a transaction. A thread that
  // remaps closes the gate first, so that a stream of readers cannot starve it.
  std::shared_mutex map_mutex_;
  std::mutex gate_;
  std::atomic<bool> gate_closed_{false};
  // Reset transactions for reuse: beginning a new one allocates.
  std::mutex idle_mutex_;
  std::vector<MDB_txn*> idle_;
  // Open table handles and how many users each has.
  std::mutex tables_mutex_;
  std::map<std::string, std::pair<MDB_dbi, int>> tables_;
  bool has_records_ = false;
  MDB_dbi records_ = 0;
};

// A table handle for a scope.
class LmdbTable {
 public:
  LmdbTable(std::shared_ptr<LmdbEnvironment> env, std::string generation, std::string table,
            bool create);
  ~LmdbTable();
  LmdbTable(const LmdbTable&) = delete;
  LmdbTable& operator=(const LmdbTable&) = delete;
  LmdbEnvironment& env() const { return *env_; }
  MDB_dbi dbi() const { return dbi_; }
  // For messages.
  std::string place() const { return "store " + env_->directory() + ", table " + table_; }

 private:
  std::shared_ptr<LmdbEnvironment> env_;
  std::string generation_;
  std::string table_;
  MDB_dbi dbi_;
};

// Fails with the code of an LMDB result that is not MDB_SUCCESS.
void check_lmdb(int result, const std::string& what);

}  // namespace hotrow
