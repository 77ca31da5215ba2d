// How fast a store on disk gives and takes the lines of a training step: LineLog, LMDB, RocksDB, a
// plain file, and bare reads as the floor. Built and called by disk_tier.py, one process a store.
//
//     disk_tier STORE DIRECTORY LINES LINE_BYTES BATCH STEPS SECONDS WARM_TURNS WARM_SECONDS
//     THREADS
//
// Loads all lines in order, overwrites random ones until that was done WARM_TURNS times the number
// of lines or for WARM_SECONDS, lets the store settle, then measures STEPS steps or SECONDS
// seconds: BATCH lines read, BATCH others overwritten. Every line read is checked. Prints one line
// of JSON.
#include <fcntl.h>
#include <lmdb.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/disk/line_log.h"
#include "core/disk/read_room.h"
#ifdef HAVE_ROCKSDB
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>
#endif

namespace {

using Rows = std::vector<uint32_t>;
using Bytes = std::vector<std::byte>;  // lines, one after the other

struct Shape {
  std::string directory;
  uint32_t lines;
  size_t line_bytes;
  size_t batch;
  size_t threads;
};

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error(what); }

// Runs work(first, last) over [0, count) in parts, one a thread.
void in_parts(size_t threads, size_t count, const std::function<void(size_t, size_t)>& work) {
  if (threads == 1) return work(0, count);
  std::vector<std::thread> pool;
  for (size_t t = 0; t < threads; ++t) {
    pool.emplace_back(work, count * t / threads, count * (t + 1) / threads);
  }
  for (std::thread& thread : pool) thread.join();
}

// The positions of rows in their order.
std::vector<uint32_t> sorted(const Rows& rows) {
  std::vector<uint32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return rows[a] < rows[b]; });
  return order;
}

class Store {
 public:
  explicit Store(const Shape& shape) : shape_(shape) {}
  virtual ~Store() = default;
  // Rows are in order, and new. lines: (rows, line_bytes).
  virtual void load(const Rows& rows, const Bytes& lines) { write(rows, lines); }
  virtual void write(const Rows& rows, const Bytes& lines) = 0;
  // lines: (rows, line_bytes) out.
  virtual void read(const Rows& rows, Bytes& lines) = 0;
  // Waits for what is written and sorted in the background.
  virtual void settle() {}

 protected:
  std::byte* at(Bytes& lines, size_t i) const { return lines.data() + i * shape_.line_bytes; }
  const std::byte* at(const Bytes& lines, size_t i) const {
    return lines.data() + i * shape_.line_bytes;
  }
  const Shape shape_;
};

class Log final : public Store {
 public:
  explicit Log(const Shape& shape)
      : Store(shape), log_(shape.directory, shape.line_bytes, kPartitions) {}
  ~Log() override {
    const hotrow::LineLog::Statistics facts = log_.statistics();
    std::fprintf(
        stderr, "file / lines %.2f, cleaned / written %.2f, waits %llu, direct %d, RAM %zu\n",
        static_cast<double>(facts.file_bytes) / static_cast<double>(facts.live_bytes),
        static_cast<double>(facts.lines_cleaned) / static_cast<double>(facts.lines_written),
        static_cast<unsigned long long>(facts.waits), log_.direct(), log_.bytes());
  }
  void write(const Rows& rows, const Bytes& lines) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      log_.write(rows[i] % kPartitions, rows[i] / kPartitions, at(lines, i));
    }
  }
  void read(const Rows& rows, Bytes& lines) override {
    reads_.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      reads_.push_back({rows[i] % kPartitions, rows[i] / kPartitions, at(lines, i)});
    }
    log_.read(reads_.data(), reads_.size());
  }

 private:
  static constexpr uint32_t kPartitions = 64;
  hotrow::LineLog log_;
  std::vector<hotrow::LineLog::Read> reads_;
};

// What no store can beat: lines that never change, each read where it must be.
class Floor final : public Store {
 public:
  explicit Floor(const Shape& shape)
      : Store(shape), file_(shape.directory), room_(file_, shape.line_bytes, true) {}
  void load(const Rows& rows, const Bytes& lines) override {
    // In pieces that direct writes allow: what is left waits for the next.
    waiting_.insert(waiting_.end(), lines.begin(), lines.end());
    const bool last = rows.back() + 1 == shape_.lines;
    if (last) waiting_.resize((waiting_.size() + kPiece - 1) / kPiece * kPiece);
    hotrow::AnonymousArray<std::byte> piece(kPiece);
    size_t used = 0;
    for (; used + kPiece <= waiting_.size(); used += kPiece, written_ += kPiece) {
      std::memcpy(piece.data(), waiting_.data() + used, kPiece);
      file_.write(written_, piece.data(), kPiece);
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(used));
  }
  void write(const Rows&, const Bytes&) override {}
  void read(const Rows& rows, Bytes& lines) override {
    const uint64_t unit = file_.alignment();
    size_t next = 0;
    for (size_t complete = 0; complete < rows.size();) {
      while (next < rows.size() && room_.pending() < kDepth) {
        const uint64_t offset = uint64_t{rows[next]} * shape_.line_bytes;
        const uint64_t begin = offset / unit * unit;
        const uint64_t end = (offset + shape_.line_bytes + unit - 1) / unit * unit;
        if (!room_.start({begin, end - begin, next, next + 1})) break;
        ++next;
      }
      for (const auto& done : room_.wait(std::max<size_t>(room_.pending() / 4, 1))) {
        const hotrow::ReadSpan& span = room_.span(done.slot);
        const uint64_t offset = uint64_t{rows[span.first]} * shape_.line_bytes;
        std::memcpy(at(lines, span.first), room_.data(done.slot) + (offset - span.offset),
                    shape_.line_bytes);
        room_.finish(done.slot);
        ++complete;
      }
    }
  }

 private:
  static constexpr size_t kPiece = 1 << 20, kDepth = 64;
  hotrow::DirectFile file_;
  hotrow::ReadRoom room_;
  Bytes waiting_;
  uint64_t written_ = 0;
};

// Lines by place, through the page cache.
class Plain final : public Store {
 public:
  explicit Plain(const Shape& shape) : Store(shape) {
    const std::string name = shape.directory + "/lines";
    file_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file_ < 0) refuse(name + ": " + std::strerror(errno));
    ::unlink(name.c_str());
    ::posix_fadvise(file_, 0, 0, POSIX_FADV_RANDOM);
  }
  ~Plain() override { ::close(file_); }
  void load(const Rows& rows, const Bytes& lines) override {
    check(::pwrite(file_, lines.data(), lines.size(), offset(rows[0])), lines.size());
  }
  void write(const Rows& rows, const Bytes& lines) override {
    in_parts(shape_.threads, rows.size(), [&](size_t first, size_t last) {
      for (size_t i = first; i < last; ++i) {
        check(::pwrite(file_, at(lines, i), shape_.line_bytes, offset(rows[i])), shape_.line_bytes);
      }
    });
  }
  void read(const Rows& rows, Bytes& lines) override {
    in_parts(shape_.threads, rows.size(), [&](size_t first, size_t last) {
      for (size_t i = first; i < last; ++i) {
        check(::pread(file_, at(lines, i), shape_.line_bytes, offset(rows[i])), shape_.line_bytes);
      }
    });
  }
  void settle() override { ::fsync(file_); }

 private:
  off_t offset(uint32_t row) const { return static_cast<off_t>(row * uint64_t{shape_.line_bytes}); }
  static void check(ssize_t done, size_t bytes) {
    if (done != static_cast<ssize_t>(bytes)) refuse(std::string("file: ") + std::strerror(errno));
  }
  int file_;
};

// One transaction a step. Nothing waits for the disk: NOSYNC, and NOMETASYNC with it; WRITEMAP
// changes pages in place of copies of them.
class Lmdb final : public Store {
 public:
  explicit Lmdb(const Shape& shape) : Store(shape) {
    check(mdb_env_create(&env_));
    check(mdb_env_set_mapsize(env_, uint64_t{shape.lines} * shape.line_bytes * 2 + (1 << 30)));
    check(mdb_env_set_maxreaders(env_, 64));
    check(mdb_env_open(env_, shape.directory.c_str(),
                       MDB_WRITEMAP | MDB_NOSYNC | MDB_NOMETASYNC | MDB_NORDAHEAD | MDB_NOMEMINIT,
                       0600));
    MDB_txn* txn;
    check(mdb_txn_begin(env_, nullptr, 0, &txn));
    check(mdb_dbi_open(txn, nullptr, MDB_INTEGERKEY, &table_));
    check(mdb_txn_commit(txn));
  }
  ~Lmdb() override { mdb_env_close(env_); }
  void load(const Rows& rows, const Bytes& lines) override { put(rows, lines, MDB_APPEND); }
  void write(const Rows& rows, const Bytes& lines) override {
    // Only one thread may write; the others bring the pages into memory for it.
    if (shape_.threads > 1) visit(rows, nullptr);
    put(rows, lines, 0);
  }
  void read(const Rows& rows, Bytes& lines) override { visit(rows, &lines); }
  void settle() override { check(mdb_env_sync(env_, 1)); }

 private:
  void put(const Rows& rows, const Bytes& lines, unsigned flags) {
    MDB_txn* txn;
    check(mdb_txn_begin(env_, nullptr, 0, &txn));
    for (const uint32_t i : sorted(rows)) {
      uint64_t key = rows[i];
      MDB_val k{sizeof(key), &key};
      MDB_val v{shape_.line_bytes, const_cast<std::byte*>(at(lines, i))};
      check(mdb_put(txn, table_, &k, &v, flags));
    }
    check(mdb_txn_commit(txn));
  }
  void visit(const Rows& rows, Bytes* lines) {
    const std::vector<uint32_t> order = sorted(rows);
    in_parts(shape_.threads, rows.size(), [&](size_t first, size_t last) {
      MDB_txn* txn;
      check(mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn));
      for (size_t n = first; n < last; ++n) {
        uint64_t key = rows[order[n]];
        MDB_val k{sizeof(key), &key}, v;
        check(mdb_get(txn, table_, &k, &v));
        // Touched, so that its page is there.
        (void)*static_cast<const volatile char*>(v.mv_data);
        if (lines != nullptr) std::memcpy(at(*lines, order[n]), v.mv_data, shape_.line_bytes);
      }
      mdb_txn_abort(txn);
    });
  }
  static void check(int rc) {
    if (rc != MDB_SUCCESS) refuse(std::string("lmdb: ") + mdb_strerror(rc));
  }
  MDB_env* env_ = nullptr;
  MDB_dbi table_ = 0;
};

#ifdef HAVE_ROCKSDB
// As the RocksDB wiki advises for point lookups on flash with little memory: direct I/O, no WAL for
// data that need not survive, bloom filters but for the last level (every key exists), leveled
// compaction with dynamic level sizes, sorted MultiGet.
class Rocks final : public Store {
 public:
  explicit Rocks(const Shape& shape) : Store(shape) {
    rocksdb::BlockBasedTableOptions table;
    table.block_size = 4096;
    table.format_version = 5;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.block_cache = rocksdb::NewLRUCache(256 << 20);
    table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
    rocksdb::Options options;
    options.create_if_missing = true;
    options.compression = rocksdb::kNoCompression;
    options.use_direct_reads = true;
    options.use_direct_io_for_flush_and_compaction = true;
    options.max_background_jobs = 4;
    options.write_buffer_size = 64 << 20;
    options.max_write_buffer_number = 4;
    options.max_bytes_for_level_base = 256 << 20;
    options.target_file_size_base = 64 << 20;
    options.level_compaction_dynamic_level_bytes = true;
    options.compaction_readahead_size = 2 << 20;
    options.optimize_filters_for_hits = true;
    options.avoid_unnecessary_blocking_io = true;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* db = nullptr;
    check(rocksdb::DB::Open(options, shape.directory, &db));
    db_.reset(db);
  }
  void write(const Rows& rows, const Bytes& lines) override {
    rocksdb::WriteBatch batch;
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint32_t key = __builtin_bswap32(rows[i]);
      check(
          batch.Put(slice(key), {reinterpret_cast<const char*>(at(lines, i)), shape_.line_bytes}));
    }
    rocksdb::WriteOptions options;
    options.disableWAL = true;
    check(db_->Write(options, &batch));
  }
  // Not longer than three minutes: compactions for a debt that grew in one of writes.
  void settle() override {
    check(db_->Flush({}));
    for (int i = 0; i < 180; ++i) {
      uint64_t running = 0, pending = 0;
      db_->GetIntProperty(rocksdb::DB::Properties::kNumRunningCompactions, &running);
      db_->GetIntProperty(rocksdb::DB::Properties::kCompactionPending, &pending);
      if (running == 0 && pending == 0) return;
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
  void read(const Rows& rows, Bytes& lines) override {
    const std::vector<uint32_t> order = sorted(rows);
    in_parts(shape_.threads, rows.size(), [&](size_t first, size_t last) {
      constexpr size_t kGroup = 256;
      std::vector<uint32_t> keys(kGroup);
      std::vector<rocksdb::Slice> slices(kGroup);
      std::vector<rocksdb::PinnableSlice> values(kGroup);
      std::vector<rocksdb::Status> states(kGroup);
      rocksdb::ReadOptions options;
      options.verify_checksums = false;
      options.fill_cache = false;  // of 8 GB at random
      options.async_io = true;
      for (; first < last; first += kGroup) {
        const size_t count = std::min(kGroup, last - first);
        for (size_t i = 0; i < count; ++i) {
          keys[i] = __builtin_bswap32(rows[order[first + i]]);
          slices[i] = slice(keys[i]);
        }
        db_->MultiGet(options, db_->DefaultColumnFamily(), count, slices.data(), values.data(),
                      states.data(), true);
        for (size_t i = 0; i < count; ++i) {
          check(states[i]);
          std::memcpy(at(lines, order[first + i]), values[i].data(), shape_.line_bytes);
          values[i].Reset();
        }
      }
    });
  }

 private:
  static rocksdb::Slice slice(const uint32_t& key) {
    return {reinterpret_cast<const char*>(&key), sizeof(key)};
  }
  static void check(const rocksdb::Status& status) {
    if (!status.ok()) refuse("rocksdb: " + status.ToString());
  }
  std::unique_ptr<rocksdb::DB> db_;
};
#endif

std::unique_ptr<Store> make(const std::string& name, const Shape& shape) {
  if (name == "hotrow") return std::make_unique<Log>(shape);
  if (name == "floor") return std::make_unique<Floor>(shape);
  if (name == "file") return std::make_unique<Plain>(shape);
  if (name == "lmdb") return std::make_unique<Lmdb>(shape);
#ifdef HAVE_ROCKSDB
  if (name == "rocksdb") return std::make_unique<Rocks>(shape);
#endif
  refuse("there is no store " + name + " in this build");
}

double now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

double cpu_seconds() {
  rusage used;
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// A number of a file of "name: number" lines in /proc/self.
double number_of(const std::string& file, const std::string& name) {
  std::ifstream lines("/proc/self/" + file);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stod(line.substr(name.size() + 1));
  }
  return 0;
}

// Random rows, and what their lines must be.
class Workload {
 public:
  explicit Workload(const Shape& shape)
      : shape_(shape), versions_(shape.lines), lines_(shape.batch * shape.line_bytes) {}

  void load(Store& store) {
    Rows rows;
    for (uint32_t first = 0; first < shape_.lines; first += static_cast<uint32_t>(rows.size())) {
      rows.resize(std::min<size_t>(shape_.batch, shape_.lines - first));
      std::iota(rows.begin(), rows.end(), first);
      lines_.resize(rows.size() * shape_.line_bytes);
      fill(rows);
      store.load(rows, lines_);
    }
    lines_.resize(shape_.batch * shape_.line_bytes);
  }
  void draw(Rows& rows) {
    rows.resize(shape_.batch);
    for (uint32_t& row : rows) row = static_cast<uint32_t>(random_() % shape_.lines);
  }
  // The next versions of rows.
  const Bytes& next(const Rows& rows) {
    for (const uint32_t row : rows) ++versions_[row];
    fill(rows);
    return lines_;
  }
  void check(const Rows& rows, const Bytes& lines, bool written) const {
    for (size_t i = 0; i < rows.size(); ++i) {
      uint32_t head[2], tail;
      std::memcpy(head, lines.data() + i * shape_.line_bytes, sizeof(head));
      std::memcpy(&tail, lines.data() + (i + 1) * shape_.line_bytes - 4, 4);
      const uint32_t version = written ? versions_[rows[i]] : 0;
      if (head[0] != rows[i] || head[1] != version || tail != (rows[i] ^ version)) {
        refuse("row " + std::to_string(rows[i]) + " was read as row " + std::to_string(head[0]) +
               ", version " + std::to_string(head[1]) + " instead of " + std::to_string(version));
      }
    }
  }

 private:
  void fill(const Rows& rows) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint32_t head[2] = {rows[i], versions_[rows[i]]};
      const uint32_t tail = head[0] ^ head[1];
      std::byte* line = lines_.data() + i * shape_.line_bytes;
      std::memcpy(line, head, sizeof(head));
      std::memcpy(line + shape_.line_bytes - 4, &tail, 4);
    }
  }
  const Shape& shape_;
  std::vector<uint8_t> versions_;
  Bytes lines_;
  std::mt19937_64 random_{7};
};

int run(const std::string& name, const Shape& shape, size_t steps, double seconds,
        double warm_turns, double warm_seconds) {
  const std::unique_ptr<Store> store = make(name, shape);
  Workload workload(shape);
  const bool writes = name != "floor";
  double began = now();
  workload.load(*store);
  const double load_seconds = now() - began;

  Rows rows;
  const auto warm_steps =
      static_cast<size_t>(warm_turns * shape.lines / static_cast<double>(shape.batch));
  size_t warmed = 0;
  began = now();
  for (; writes && warmed < warm_steps && now() - began < warm_seconds; ++warmed) {
    workload.draw(rows);
    store->write(rows, workload.next(rows));
  }
  const double warm_step_ms = warmed == 0 ? 0 : 1e3 * (now() - began) / static_cast<double>(warmed);
  began = now();
  store->settle();
  const double settle_seconds = now() - began;

  Bytes lines(shape.batch * shape.line_bytes);
  std::vector<double> whole, reads;
  Rows others;
  double cpu = 0;
  const double written = number_of("io", "write_bytes"), read = number_of("io", "read_bytes");
  began = now();
  while (whole.size() < steps && now() - began < seconds) {
    workload.draw(rows);
    workload.draw(others);
    const double cpu_before = cpu_seconds(), start = now();
    store->read(rows, lines);
    const double middle = now();
    double end = middle;
    if (writes) {
      workload.check(rows, lines, true);
      const Bytes& next = workload.next(others);
      const double resumed = now();
      store->write(others, next);
      end = middle + (now() - resumed);
    } else {
      workload.check(rows, lines, false);
    }
    cpu += cpu_seconds() - cpu_before;
    whole.push_back(1e3 * (end - start));
    reads.push_back(1e3 * (middle - start));
  }
  const auto count = static_cast<double>(whole.size());
  const double bytes = count * static_cast<double>(shape.batch * shape.line_bytes);
  std::sort(whole.begin(), whole.end());
  std::sort(reads.begin(), reads.end());
  const double mean = std::accumulate(whole.begin(), whole.end(), 0.0) / count;
  std::printf(
      "{\"steps\": %.0f, \"median_ms\": %.2f, \"p99_ms\": %.2f, \"mean_ms\": %.2f, "
      "\"read_ms\": %.2f, \"cpu_ms\": %.2f, \"lines_a_second\": %.0f, "
      "\"write_amplification\": %.2f, \"read_amplification\": %.2f, "
      "\"memory_mb\": %.0f, \"load_seconds\": %.1f, \"warm_turns\": %.2f, "
      "\"warm_step_ms\": %.2f, \"settle_seconds\": %.1f}\n",
      count, whole[whole.size() / 2], whole[whole.size() * 99 / 100], mean, reads[reads.size() / 2],
      1e3 * cpu / count, 1e3 * static_cast<double>(shape.batch) * (writes ? 2 : 1) / mean,
      (number_of("io", "write_bytes") - written) / bytes,
      (number_of("io", "read_bytes") - read) / bytes, number_of("status", "RssAnon") / 1024,
      load_seconds, static_cast<double>(warmed * shape.batch) / shape.lines, warm_step_ms,
      settle_seconds);
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 11) {
    std::fprintf(stderr, "ten arguments; see disk_tier.cc\n");
    return 2;
  }
  const Shape shape{argv[2], static_cast<uint32_t>(std::stoul(argv[3])), std::stoul(argv[4]),
                    std::stoul(argv[5]), std::stoul(argv[10])};
  try {
    return run(argv[1], shape, std::stoul(argv[6]), std::stod(argv[7]), std::stod(argv[8]),
               std::stod(argv[9]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
    return 1;
  }
}
