#include "core/lmdb/environment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/base/status.h"
#include "core/lmdb/write_turn.h"

namespace hotrow {
namespace {

// The other databases are tables, whose names have a slash.
constexpr const char* kRecords = "hotrow";
constexpr size_t kMapHeadroomBytes = size_t{64} << 20;
// A transaction allocates 50 bytes for each table that could be open.
constexpr unsigned kMaxOpenTables = 2048;
constexpr unsigned kMaxReaders = 1024;
// Between two looks for readers whose processes were killed.
constexpr std::chrono::seconds kDeadReaders{1};

// Recursive: the last user of an environment may close it while another is being opened.
std::recursive_mutex& open_mutex() {
  static auto* mutex = new std::recursive_mutex();
  return *mutex;
}

// By canonical path; see LmdbEnvironment::is_current.
std::map<std::string, std::weak_ptr<LmdbEnvironment>>& open_environments() {
  static auto* map = new std::map<std::string, std::weak_ptr<LmdbEnvironment>>();
  return *map;
}

std::string full_name(const std::string& generation, const std::string& table) {
  return generation + "/" + table;
}

void check(int rc, const std::string& what) { check_lmdb(rc, what); }

}  // namespace

void check_lmdb(int rc, const std::string& what) {
  if (rc == MDB_SUCCESS) return;
  Code code = Code::kUnavailable;
  if (rc == MDB_NOTFOUND) code = Code::kNotFound;
  if (rc == MDB_CORRUPTED || rc == MDB_PAGE_NOTFOUND || rc == MDB_INVALID ||
      rc == MDB_VERSION_MISMATCH || rc == MDB_INCOMPATIBLE) {
    code = Code::kDataLoss;
  }
  if (rc == MDB_MAP_FULL || rc == ENOSPC || rc == MDB_DBS_FULL || rc == MDB_READERS_FULL) {
    code = Code::kResourceExhausted;
  }
  fail(code, "%s: %s", what.c_str(), mdb_strerror(rc));
}

std::shared_ptr<LmdbEnvironment> LmdbEnvironment::open(const std::string& directory, bool create) {
  std::lock_guard lock(open_mutex());
  std::error_code error;
  if (create) std::filesystem::create_directories(directory, error);
  if (error) {
    fail(Code::kUnavailable, "store %s cannot be made: %s", directory.c_str(),
         error.message().c_str());
  }
  const std::string path = std::filesystem::canonical(directory, error).string();
  if (error) {
    fail(error == std::errc::no_such_file_or_directory ? Code::kNotFound : Code::kUnavailable,
         "store %s cannot be opened: %s", directory.c_str(), error.message().c_str());
  }
  auto found = open_environments().find(path);
  if (found != open_environments().end()) {
    auto env = found->second.lock();
    // If its files were replaced, an open environment is another store.
    if (env != nullptr && env->is_current()) {
      if (create && !env->writable_) {
        fail(Code::kFailedPrecondition,
             "store %s cannot be written: its files or its disk are read-only", directory.c_str());
      }
      return env;
    }
  }
  if (!create && ::access((path + "/data.mdb").c_str(), F_OK) != 0) {
    fail(Code::kNotFound, "store %s holds no LMDB data (data.mdb)", directory.c_str());
  }
  // Closing under the lock: the environment must be gone before it can be opened anew.
  std::shared_ptr<LmdbEnvironment> env(new LmdbEnvironment(), [](LmdbEnvironment* closing) {
    std::lock_guard closing_lock(open_mutex());
    delete closing;
  });
  env->directory_ = path;
  // Writable even for a reader: a later writer of this process must share the environment. On a
  // read-only disk, open read-only; where the lock file cannot be written either, open without it:
  // such a store does not change.
  for (const unsigned mode : {0U, unsigned{MDB_RDONLY}, unsigned{MDB_RDONLY | MDB_NOLOCK}}) {
    const int rc = env->open_with(mode);
    if (rc == MDB_SUCCESS) break;
    const bool refused = rc == EACCES || rc == EROFS || rc == EPERM;
    if (create || !refused || (mode & MDB_NOLOCK) != 0) {
      check(rc, "store " + directory + " cannot be opened");
    }
  }
  env->forget_dead_readers();
  env->check_size();
  open_environments()[path] = env;
  return env;
}

// The size of data.mdb, and the bytes that its pages need.
std::pair<size_t, size_t> LmdbEnvironment::sizes() const {
  MDB_envinfo info;
  MDB_stat facts;
  struct stat there;
  const std::string what = "store " + directory_;
  check(mdb_env_info(env_, &info), what);
  check(mdb_env_stat(env_, &facts), what);
  check(::fstat(file(), &there) == 0 ? MDB_SUCCESS : errno, what);
  return {static_cast<size_t>(there.st_size), (info.me_last_pgno + 1) * facts.ms_psize};
}

// LMDB maps its file: reading a missing page would end the process.
void LmdbEnvironment::check_size() const {
  // A writer of another process may be between its commit and complete_file.
  for (int attempt = 0;; ++attempt) {
    const auto [there, needed] = sizes();
    if (there >= needed) return;
    if (attempt == 20) {
      fail(Code::kDataLoss, "store %s is cut: data.mdb has %zu bytes and needs %zu",
           directory_.c_str(), there, needed);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// LMDB does not write a page that its own transaction allocated and freed. Extends the file with a
// hole for it, so that check_size may be strict.
void LmdbEnvironment::complete_file() {
  const auto [there, needed] = sizes();
  if (there >= needed) return;
  check(::ftruncate(file(), static_cast<off_t>(needed)) == 0 ? MDB_SUCCESS : errno,
        "store " + directory_);
}

int LmdbEnvironment::open_with(unsigned mode) {
  if (env_ != nullptr) mdb_env_close(std::exchange(env_, nullptr));
  writable_ = (mode & MDB_RDONLY) == 0;
  int rc = mdb_env_create(&env_);
  if (rc == MDB_SUCCESS) rc = mdb_env_set_maxdbs(env_, kMaxOpenTables);
  if (rc == MDB_SUCCESS) rc = mdb_env_set_maxreaders(env_, kMaxReaders);
  // MDB_NOTLS: a thread may hold several read transactions. MDB_NORDAHEAD: lookups are random.
  if (rc == MDB_SUCCESS) {
    rc = mdb_env_open(env_, directory_.c_str(), MDB_NOTLS | MDB_NORDAHEAD | mode, 0644);
  }
  return rc;
}

mdb_filehandle_t LmdbEnvironment::file() const {
  mdb_filehandle_t file;
  check(mdb_env_get_fd(env_, &file), "store " + directory_);
  return file;
}

// Frees the slots of readers whose processes were killed; returns how many. Otherwise their slots
// stay taken, and no page that they could read is ever used again. Closing and opening does not
// help while any other process has the environment open.
int LmdbEnvironment::forget_dead_readers() {
  int dead = 0;
  return mdb_reader_check(env_, &dead) == MDB_SUCCESS ? dead : 0;
}

int LmdbEnvironment::begin_read(MDB_txn** txn) {
  const int rc = mdb_txn_begin(env_, nullptr, MDB_RDONLY, txn);
  if (rc != MDB_READERS_FULL || forget_dead_readers() == 0) return rc;
  return mdb_txn_begin(env_, nullptr, MDB_RDONLY, txn);
}

LmdbEnvironment::~LmdbEnvironment() {
  for (MDB_txn* txn : idle_) mdb_txn_abort(txn);
  if (env_ != nullptr) mdb_env_close(env_);
}

bool LmdbEnvironment::is_current() const {
  mdb_filehandle_t file;
  struct stat opened, there;
  return mdb_env_get_fd(env_, &file) == MDB_SUCCESS && ::fstat(file, &opened) == 0 &&
         ::stat((directory_ + "/data.mdb").c_str(), &there) == 0 && opened.st_dev == there.st_dev &&
         opened.st_ino == there.st_ino;
}

std::shared_lock<std::shared_mutex> LmdbEnvironment::lock_map() {
  if (gate_closed_.load(std::memory_order_acquire)) std::lock_guard wait(gate_);
  return std::shared_lock(map_mutex_);
}

// bytes: the new size; 0 uses the size that another process set.
void LmdbEnvironment::remap(size_t bytes) {
  std::lock_guard gate(gate_);
  gate_closed_.store(true, std::memory_order_release);
  int rc;
  {
    std::unique_lock lock(map_mutex_);
    rc = mdb_env_set_mapsize(env_, bytes);
  }
  gate_closed_.store(false, std::memory_order_release);
  check(rc, "store " + directory_);
}

void LmdbEnvironment::reserve(size_t bytes, bool full) {
  MDB_envinfo info;
  MDB_stat stat;
  {
    const auto lock = lock_map();
    check(mdb_env_info(env_, &info), "store " + directory_);
    check(mdb_env_stat(env_, &stat), "store " + directory_);
  }
  const size_t page = stat.ms_psize;
  // Leaf pages are at worst half full; the file grows only as pages are used.
  size_t wanted = (info.me_last_pgno + 1) * page + 3 * bytes + kMapHeadroomBytes;
  if (full) wanted = std::max(wanted, 2 * info.me_mapsize);
  if (wanted > info.me_mapsize) remap((wanted + page - 1) / page * page);
}

LmdbEnvironment::Read::Read(LmdbEnvironment& env)
    : env_(env), lock_(env.lock_map()), txn_(nullptr) {
  {
    std::lock_guard idle(env.idle_mutex_);
    if (!env.idle_.empty()) {
      txn_ = env.idle_.back();
      env.idle_.pop_back();
    }
  }
  int rc;
  while (true) {
    rc = txn_ != nullptr ? mdb_txn_renew(txn_) : env.begin_read(&txn_);
    if (rc != MDB_MAP_RESIZED) break;
    lock_.unlock();
    env.remap(0);
    lock_ = env.lock_map();
  }
  if (rc != MDB_SUCCESS) {
    if (txn_ != nullptr) mdb_txn_abort(txn_);
    check(rc, "store " + env.directory_);
  }
}

LmdbEnvironment::Read::~Read() {
  mdb_txn_reset(txn_);
  std::lock_guard idle(env_.idle_mutex_);
  env_.idle_.push_back(txn_);
}

void LmdbEnvironment::write(const std::string& what, const std::function<int(MDB_txn*)>& work) {
  if (!writable_) fail(Code::kFailedPrecondition, "%s: the store is read-only", what.c_str());
  const WriteTurn turn(writers_, file(), patience_, what);
  const auto now = std::chrono::steady_clock::now();
  if (now - checked_ > kDeadReaders) {
    forget_dead_readers();
    checked_ = now;
  }
  while (true) {
    int rc;
    {
      const auto lock = lock_map();
      MDB_txn* txn = nullptr;
      rc = mdb_txn_begin(env_, nullptr, 0, &txn);
      if (rc == MDB_SUCCESS) {
        rc = work(txn);
        if (rc == MDB_SUCCESS) {
          rc = mdb_txn_commit(txn);
          if (rc == MDB_SUCCESS) complete_file();
        } else {
          mdb_txn_abort(txn);
        }
      }
    }
    if (rc == MDB_MAP_RESIZED) {
      remap(0);
    } else if (rc == MDB_MAP_FULL) {
      reserve(0, true);
    } else {
      check(rc, what);
      return;
    }
  }
}

MDB_dbi LmdbEnvironment::open_table(const std::string& generation, const std::string& table,
                                    bool create) {
  const std::string name = full_name(generation, table);
  // mdb_dbi_open may not run in two transactions at once.
  std::lock_guard lock(tables_mutex_);
  auto found = tables_.find(name);
  if (found != tables_.end()) {
    ++found->second.second;
    return found->second.first;
  }
  MDB_dbi dbi = 0;
  const std::string what = "store " + directory_ + ", table " + table;
  if (create) {
    write(what, [&](MDB_txn* txn) {
      return mdb_dbi_open(txn, name.c_str(), MDB_INTEGERKEY | MDB_CREATE, &dbi);
    });
  } else {
    const auto map_lock = lock_map();
    MDB_txn* txn = nullptr;
    check(begin_read(&txn), what);
    const int rc = mdb_dbi_open(txn, name.c_str(), MDB_INTEGERKEY, &dbi);
    if (rc != MDB_SUCCESS) {
      mdb_txn_abort(txn);
      if (rc == MDB_NOTFOUND) {
        fail(Code::kNotFound, "store %s has no table %s of generation %s", directory_.c_str(),
             table.c_str(), generation.c_str());
      }
      check(rc, what);
    }
    check(mdb_txn_commit(txn), what);  // keeps the handle
  }
  tables_[name] = {dbi, 1};
  return dbi;
}

void LmdbEnvironment::close_table(const std::string& generation, const std::string& table) {
  std::lock_guard lock(tables_mutex_);
  auto found = tables_.find(full_name(generation, table));
  if (--found->second.second > 0) return;
  mdb_dbi_close(env_, found->second.first);
  tables_.erase(found);
}

void LmdbEnvironment::drop_table(const std::string& generation, const std::string& table) {
  const std::string name = full_name(generation, table);
  const std::string what = "store " + directory_ + ", table " + table;
  std::lock_guard lock(tables_mutex_);
  if (tables_.count(name) != 0) {
    fail(Code::kFailedPrecondition, "%s of generation %s is in use", what.c_str(),
         generation.c_str());
  }
  write(what, [&](MDB_txn* txn) {
    MDB_dbi dbi;
    const int rc = mdb_dbi_open(txn, name.c_str(), MDB_INTEGERKEY, &dbi);
    if (rc == MDB_NOTFOUND) return MDB_SUCCESS;
    return rc != MDB_SUCCESS ? rc : mdb_drop(txn, dbi, 1);
  });
}

bool LmdbEnvironment::open_records(bool create, MDB_dbi* records) {
  std::lock_guard lock(tables_mutex_);
  if (!has_records_ && create) {
    write("store " + directory_,
          [&](MDB_txn* txn) { return mdb_dbi_open(txn, kRecords, MDB_CREATE, &records_); });
    has_records_ = true;
  } else if (!has_records_) {
    const auto map_lock = lock_map();
    MDB_txn* txn = nullptr;
    check(begin_read(&txn), "store " + directory_);
    const int rc = mdb_dbi_open(txn, kRecords, 0, &records_);
    if (rc != MDB_SUCCESS) {
      mdb_txn_abort(txn);
      if (rc == MDB_NOTFOUND) return false;
      check(rc, "store " + directory_);
    }
    check(mdb_txn_commit(txn), "store " + directory_);  // keeps the handle
    has_records_ = true;
  }
  *records = records_;
  return true;
}

LmdbTable::LmdbTable(std::shared_ptr<LmdbEnvironment> env, std::string generation,
                     std::string table, bool create)
    : env_(std::move(env)),
      generation_(std::move(generation)),
      table_(std::move(table)),
      dbi_(env_->open_table(generation_, table_, create)) {}

LmdbTable::~LmdbTable() { env_->close_table(generation_, table_); }

}  // namespace hotrow
