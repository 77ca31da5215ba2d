#include "core/lmdb_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "core/digest.h"
#include "core/status.h"

namespace hotrow {
namespace {

using FileId = std::pair<dev_t, ino_t>;

std::mutex& open_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::map<FileId, std::weak_ptr<LmdbEnvironment>>& open_environments() {
  static auto* map = new std::map<FileId, std::weak_ptr<LmdbEnvironment>>();
  return *map;
}

void check(int rc, const std::string& what) {
  if (rc == MDB_SUCCESS) return;
  Code code = Code::kUnavailable;
  if (rc == MDB_NOTFOUND) code = Code::kNotFound;
  if (rc == MDB_CORRUPTED || rc == MDB_PAGE_NOTFOUND || rc == MDB_INVALID ||
      rc == MDB_VERSION_MISMATCH) {
    code = Code::kDataLoss;
  }
  if (rc == MDB_MAP_FULL || rc == ENOSPC || rc == MDB_DBS_FULL) code = Code::kResourceExhausted;
  fail(code, "%s: %s", what.c_str(), mdb_strerror(rc));
}

// A read-only transaction for the length of a scope.
class ReadTransaction {
 public:
  explicit ReadTransaction(LmdbEnvironment& env) : lock_(env.map_mutex()) {
    int rc = mdb_txn_begin(env.get(), nullptr, MDB_RDONLY, &txn_);
    while (rc == MDB_MAP_RESIZED) {
      lock_.unlock();
      env.adopt_map_size();
      lock_.lock();
      rc = mdb_txn_begin(env.get(), nullptr, MDB_RDONLY, &txn_);
    }
    check(rc, "store " + env.directory());
  }
  ~ReadTransaction() {
    if (txn_ != nullptr) mdb_txn_abort(txn_);
  }
  ReadTransaction(const ReadTransaction&) = delete;
  ReadTransaction& operator=(const ReadTransaction&) = delete;
  MDB_txn* get() const { return txn_; }
  // Keeps the table handles that the transaction opened.
  void commit() { check(mdb_txn_commit(std::exchange(txn_, nullptr)), "store"); }

 private:
  std::shared_lock<std::shared_mutex> lock_;
  MDB_txn* txn_ = nullptr;
};

class WriteTransaction {
 public:
  explicit WriteTransaction(LmdbEnvironment& env)
      : lock_(env.map_mutex()), directory_(env.directory()) {
    check(mdb_txn_begin(env.get(), nullptr, 0, &txn_), "store " + directory_);
  }
  ~WriteTransaction() {
    if (txn_ != nullptr) mdb_txn_abort(txn_);
  }
  WriteTransaction(const WriteTransaction&) = delete;
  WriteTransaction& operator=(const WriteTransaction&) = delete;
  MDB_txn* get() const { return txn_; }
  void commit() { check(mdb_txn_commit(std::exchange(txn_, nullptr)), "store " + directory_); }

 private:
  std::shared_lock<std::shared_mutex> lock_;
  MDB_txn* txn_ = nullptr;
  std::string directory_;
};

constexpr unsigned kTableFlags = MDB_INTEGERKEY;

}  // namespace

std::shared_ptr<LmdbEnvironment> LmdbEnvironment::open(const std::string& directory, bool create) {
  std::lock_guard lock(open_mutex());
  std::error_code error;
  if (create) std::filesystem::create_directories(directory, error);
  if (error) {
    fail(Code::kUnavailable, "store %s cannot be made: %s", directory.c_str(),
         error.message().c_str());
  }
  struct stat facts;
  if (::stat(directory.c_str(), &facts) != 0) {
    fail(errno == ENOENT ? Code::kNotFound : Code::kUnavailable, "store %s cannot be opened: %s",
         directory.c_str(), std::strerror(errno));
  }
  const FileId id(facts.st_dev, facts.st_ino);
  auto found = open_environments().find(id);
  if (found != open_environments().end()) {
    if (auto env = found->second.lock()) {
      if (create && !env->writable_) {
        fail(Code::kFailedPrecondition,
             "store %s cannot be written: its files or its disk are read-only", directory.c_str());
      }
      return env;
    }
  }
  if (!create && ::access((directory + "/data.mdb").c_str(), F_OK) != 0) {
    fail(Code::kNotFound, "store %s holds no LMDB data (data.mdb)", directory.c_str());
  }
  std::shared_ptr<LmdbEnvironment> env(new LmdbEnvironment());
  env->directory_ = directory;
  // Writable even for a reader: a later writer of this process must share the environment. On a
  // disk that cannot be written, read-only; and where not even the lock file can be, without it:
  // such a store does not change under us.
  for (const unsigned mode : {0U, unsigned{MDB_RDONLY}, unsigned{MDB_RDONLY | MDB_NOLOCK}}) {
    const int rc = env->open_with(mode);
    if (rc == MDB_SUCCESS) break;
    const bool refused = rc == EACCES || rc == EROFS || rc == EPERM;
    if (create || !refused || (mode & MDB_NOLOCK) != 0) {
      check(rc, "store " + directory + " cannot be opened");
    }
  }
  if (create) env->reserve(0);
  open_environments()[id] = env;
  return env;
}

int LmdbEnvironment::open_with(unsigned mode) {
  if (env_ != nullptr) mdb_env_close(std::exchange(env_, nullptr));
  writable_ = (mode & MDB_RDONLY) == 0;
  int rc = mdb_env_create(&env_);
  if (rc == MDB_SUCCESS) rc = mdb_env_set_maxdbs(env_, 4096);
  if (rc == MDB_SUCCESS) rc = mdb_env_set_maxreaders(env_, 1024);
  // MDB_NOTLS: a thread may hold several read transactions. MDB_NORDAHEAD: lookups are random.
  if (rc == MDB_SUCCESS) {
    rc = mdb_env_open(env_, directory_.c_str(), MDB_NOTLS | MDB_NORDAHEAD | mode, 0644);
  }
  return rc;
}

LmdbEnvironment::~LmdbEnvironment() {
  if (env_ != nullptr) mdb_env_close(env_);
}

void LmdbEnvironment::adopt_map_size() {
  std::unique_lock lock(map_mutex_);
  check(mdb_env_set_mapsize(env_, 0), "store " + directory_);
}

void LmdbEnvironment::reserve(size_t bytes) {
  std::unique_lock lock(map_mutex_);
  MDB_envinfo info;
  MDB_stat stat;
  check(mdb_env_info(env_, &info), "store " + directory_);
  check(mdb_env_stat(env_, &stat), "store " + directory_);
  const size_t used = (info.me_last_pgno + 1) * stat.ms_psize;
  // Leaf pages are at worst half full; the file grows only as pages are used.
  const size_t wanted = used + 3 * bytes + (size_t{64} << 20);
  if (wanted > info.me_mapsize) {
    check(mdb_env_set_mapsize(env_, (wanted + 4095) / 4096 * 4096), "store " + directory_);
  }
}

MDB_dbi LmdbEnvironment::open_table(const std::string& generation, const std::string& table,
                                    bool create) {
  // mdb_dbi_open may not run in two transactions at once.
  std::lock_guard lock(open_mutex());
  const std::string name = generation + "/" + table;
  MDB_dbi dbi = 0;
  int rc;
  if (create) {
    WriteTransaction txn(*this);
    rc = mdb_dbi_open(txn.get(), name.c_str(), kTableFlags | MDB_CREATE, &dbi);
    if (rc == MDB_SUCCESS) txn.commit();
  } else {
    ReadTransaction txn(*this);
    rc = mdb_dbi_open(txn.get(), name.c_str(), kTableFlags, &dbi);
    if (rc == MDB_SUCCESS) txn.commit();
  }
  if (rc == MDB_NOTFOUND) {
    fail(Code::kNotFound, "store %s has no table %s of generation %s", directory_.c_str(),
         table.c_str(), generation.c_str());
  }
  check(rc, "store " + directory_ + ", table " + name);
  return dbi;
}

std::vector<LmdbEnvironment::Entry> LmdbEnvironment::list() {
  std::vector<Entry> entries;
  {
    ReadTransaction txn(*this);
    MDB_dbi names;
    check(mdb_dbi_open(txn.get(), nullptr, 0, &names), "store " + directory_);
    MDB_cursor* cursor = nullptr;
    check(mdb_cursor_open(txn.get(), names, &cursor), "store " + directory_);
    std::unique_ptr<MDB_cursor, decltype(&mdb_cursor_close)> guard(cursor, mdb_cursor_close);
    MDB_val k, v;
    while (mdb_cursor_get(cursor, &k, &v, MDB_NEXT) == MDB_SUCCESS) {
      const std::string name(static_cast<const char*>(k.mv_data), k.mv_size);
      // Generations hold no slash; table names may.
      const size_t slash = name.find('/');
      if (slash == std::string::npos) continue;
      entries.push_back(Entry{name.substr(0, slash), name.substr(slash + 1), 0});
    }
  }
  for (Entry& entry : entries) {
    const MDB_dbi dbi = open_table(entry.generation, entry.table, false);
    ReadTransaction txn(*this);
    MDB_stat stat;
    check(mdb_stat(txn.get(), dbi, &stat), "store " + directory_);
    entry.rows = stat.ms_entries;
  }
  return entries;
}

LmdbWriter::LmdbWriter(std::shared_ptr<LmdbEnvironment> env, std::string generation,
                       std::string table, size_t width)
    : env_(std::move(env)), name_(std::move(table)), width_(width) {
  dbi_ = env_->open_table(generation, name_, true);
}

void LmdbWriter::put(const int64_t* keys, size_t count, const float* rows) {
  const size_t row_bytes = width_ * sizeof(float);
  env_->reserve(count * (row_bytes + 32));
  // In the order of the B-tree, so that pages are written once.
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return static_cast<uint64_t>(keys[a]) < static_cast<uint64_t>(keys[b]);
  });
  WriteTransaction txn(*env_);
  for (size_t i : order) {
    int64_t key = keys[i];
    MDB_val k{sizeof(key), &key};
    MDB_val v{row_bytes, const_cast<float*>(rows + i * width_)};
    check(mdb_put(txn.get(), dbi_, &k, &v, 0), "store " + env_->directory() + ", table " + name_);
  }
  txn.commit();
}

LmdbReader::LmdbReader(std::shared_ptr<LmdbEnvironment> env, std::string generation,
                       std::string table, size_t width, float default_value)
    : env_(std::move(env)), name_(std::move(table)), width_(width), default_value_(default_value) {
  dbi_ = env_->open_table(generation, name_, false);
}

void LmdbReader::check_row(const MDB_val& value, int64_t key) const {
  if (value.mv_size != width_ * sizeof(float)) {
    fail(Code::kDataLoss,
         "store %s, table %s: the row of key %lld has %zu bytes; width %zu needs %zu",
         env_->directory().c_str(), name_.c_str(), static_cast<long long>(key), value.mv_size,
         width_, width_ * sizeof(float));
  }
}

size_t LmdbReader::read(const int64_t* keys, size_t count, float* rows) const {
  ReadTransaction txn(*env_);
  size_t unknown = 0;
  for (size_t i = 0; i < count; ++i) {
    int64_t key = keys[i];
    MDB_val k{sizeof(key), &key}, v;
    const int rc = mdb_get(txn.get(), dbi_, &k, &v);
    if (rc == MDB_NOTFOUND) {
      std::fill_n(rows + i * width_, width_, default_value_);
      ++unknown;
      continue;
    }
    check(rc, "store " + env_->directory() + ", table " + name_);
    check_row(v, key);
    std::memcpy(rows + i * width_, v.mv_data, v.mv_size);
  }
  return unknown;
}

size_t LmdbReader::size() const {
  ReadTransaction txn(*env_);
  MDB_stat stat;
  check(mdb_stat(txn.get(), dbi_, &stat), "store " + env_->directory());
  return stat.ms_entries;
}

size_t LmdbReader::scan(bool from_start, int64_t after, size_t count, int64_t* keys,
                        float* rows) const {
  if (count == 0) return 0;
  ReadTransaction txn(*env_);
  MDB_cursor* cursor = nullptr;
  check(mdb_cursor_open(txn.get(), dbi_, &cursor), "store " + env_->directory());
  std::unique_ptr<MDB_cursor, decltype(&mdb_cursor_close)> guard(cursor, mdb_cursor_close);
  int64_t key = after;
  MDB_val k{sizeof(key), &key}, v;
  int rc = mdb_cursor_get(cursor, &k, &v, from_start ? MDB_FIRST : MDB_SET_RANGE);
  if (rc == MDB_SUCCESS && !from_start && std::memcmp(k.mv_data, &after, sizeof(after)) == 0) {
    rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
  }
  size_t done = 0;
  for (; rc == MDB_SUCCESS && done < count; ++done) {
    std::memcpy(&keys[done], k.mv_data, sizeof(int64_t));
    check_row(v, keys[done]);
    std::memcpy(rows + done * width_, v.mv_data, v.mv_size);
    if (done + 1 < count) rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
  }
  if (rc != MDB_SUCCESS && rc != MDB_NOTFOUND) check(rc, "store " + env_->directory());
  return done;
}

void LmdbReader::digest(uint64_t digest[2]) const {
  digest[0] = digest[1] = 0;
  ReadTransaction txn(*env_);
  MDB_cursor* cursor = nullptr;
  check(mdb_cursor_open(txn.get(), dbi_, &cursor), "store " + env_->directory());
  std::unique_ptr<MDB_cursor, decltype(&mdb_cursor_close)> guard(cursor, mdb_cursor_close);
  std::vector<float> row(width_);
  MDB_val k, v;
  int rc;
  while ((rc = mdb_cursor_get(cursor, &k, &v, MDB_NEXT)) == MDB_SUCCESS) {
    int64_t key;
    std::memcpy(&key, k.mv_data, sizeof(key));
    check_row(v, key);
    std::memcpy(row.data(), v.mv_data, v.mv_size);
    add_row_digest(key, row.data(), width_, digest);
  }
  if (rc != MDB_NOTFOUND) check(rc, "store " + env_->directory());
}

}  // namespace hotrow
