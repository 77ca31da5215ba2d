#include "core/serving/tables.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "core/base/status.h"
#include "core/lmdb/rows.h"
#include "core/serving/device_lookup.h"
#include "core/serving/hot_list.h"
#include "core/store/manifest.h"
#include "core/store/stored_generation.h"

namespace hotrow {
namespace {

// In the version's directory.
constexpr const char* kHotRows = "hot_rows.bin";
constexpr size_t kWarmUpKeys = 4096;  // at a time, at most
// Pieces of the time of a warm-up: the reads of a piece come all at once.
constexpr double kWarmUpPieceSeconds = 0.02;
// Warm-up begins at a random moment: servers that get a version at the same time do not read from
// the store at the same time. In shares of the time that it will take.
constexpr double kWarmUpJitter = 0.5;
constexpr double kLongestJitterSeconds = 5.0;
constexpr auto kWarmUpPatience = std::chrono::seconds(2);

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// How many of a merged layer's newest cuts are the files from `at` on.
size_t common_files(const CutLayer& merged, const std::vector<LayerFile>& files, size_t at) {
  size_t same = 0;
  while (same < merged.files().size() && at + same < files.size() &&
         merged.files()[same] == files[at + same]) {
    ++same;
  }
  return same;
}

// Limits the rows that a warm-up reads.
class WarmUpPace {
 public:
  // rows: to read; per_second: 0: any number.
  WarmUpPace(size_t rows, uint64_t per_second)
      : per_second_(static_cast<double>(per_second)), due_(std::chrono::steady_clock::now()) {
    if (per_second == 0) return;
    const double longest =
        std::min(kLongestJitterSeconds, kWarmUpJitter * static_cast<double>(rows) / per_second_);
    std::random_device seed;
    add(std::uniform_real_distribution<double>(0.0, longest)(seed));
  }
  // Rows of a piece.
  size_t piece() const {
    if (per_second_ == 0) return kWarmUpKeys;
    return std::clamp<size_t>(static_cast<size_t>(per_second_ * kWarmUpPieceSeconds), 1,
                              kWarmUpKeys);
  }
  // Waits until so many more rows may be read. A store that was slow meanwhile is not asked for
  // more to make up for that.
  void await(size_t rows) {
    if (per_second_ == 0) return;
    std::this_thread::sleep_until(due_);
    due_ = std::max(due_, std::chrono::steady_clock::now());
    add(static_cast<double>(rows) / per_second_);
  }

 private:
  void add(double seconds) {
    due_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds));
  }

  const double per_second_;
  std::chrono::steady_clock::time_point due_;
};

}  // namespace

ServingTables::ServingTables(const std::string& manifest_path, const ServingOptions& options)
    : id_(next_id()), manifest_path_(manifest_path), options_(options) {
  const Manifest manifest = read_manifest(manifest_path);
  const std::string url = options.store.empty() ? manifest.store : options.store;
  if (!options.generation.empty()) {
    auto redis = std::make_shared<RedisReader>(parse_generation(options.generation),
                                               options.topology, options.redis);
    redis_ = redis.get();
    redis_->set_fence(options_.fence);
    if (options_.shown == 0) options_.shown = redis->exported();
    reader_ = std::move(redis);
  } else {
    auto lmdb = std::make_shared<LmdbReader>(store_directory(url, manifest_path),
                                             manifest.generation, /*complete=*/true);
    if (options_.shown == 0) options_.shown = lmdb->exported();
    reader_ = std::move(lmdb);
  }
  const std::vector<StoredTable>& stored = reader_->tables();
  for (size_t t = 0; t < stored.size(); ++t) numbers_.emplace(stored[t].name, t);
  for (const ManifestTable& table : manifest.tables) {
    const StoredTable& there = stored[number_of(table.name)];
    if (there.width != table.width) {
      fail(Code::kDataLoss, "store %s, table %s: rows of dim %zu; the manifest has dim %zu",
           url.c_str(), table.name.c_str(), there.width, table.width);
    }
  }
  if (options.cache.rows != 0 || options.cache.bytes != 0) {
    cache_ = std::make_shared<HotRows>(stored, options.cache);
  }
  ServingLookupOptions lookup;
  lookup.on_store_failure = options.on_store_failure;
  // A read of LMDB costs less than finding another lookup's fetch.
  lookup.share_fetches = redis_ != nullptr;
  lookup.takes_no_cuts = options.takes_no_cuts;
  lookup_ = std::make_unique<ServingLookup>(reader_, cache_, lookup);
  if (options.on_gpu.gpu >= 0) {
    if (cache_ == nullptr) {
      fail(Code::kInvalidArgument,
           "a cache of rows on GPU %d without one in RAM, from which its rows come",
           options.on_gpu.gpu);
    }
    on_gpu_ = make_device_rows(cache_, options.on_gpu);
  }
  if (cache_ != nullptr) warm_up();
}

void ServingTables::warm_up() {
  const HotList hot = read_hot_list(
      std::filesystem::absolute(manifest_path_).parent_path().parent_path() / kHotRows,
      tables().size());
  const size_t most = std::min(hot.keys.size(), cache_->slots());
  struct Part {
    std::vector<int64_t> keys;
    std::vector<std::byte> rows;
    std::vector<RowVersion> versions;
    std::vector<ReadState> states;
  };
  std::vector<Part> parts(tables().size());
  std::vector<ReadRequest> requests;
  // Reads of files of this machine disturb no other server.
  WarmUpPace pace(most, redis_ == nullptr ? 0 : options_.warm_up_rows_per_second);
  for (size_t begin = 0; begin < most; begin += pace.piece()) {
    for (Part& part : parts) part.keys.clear();
    const size_t end = std::min(most, begin + pace.piece());
    pace.await(end - begin);
    for (size_t i = begin; i < end; ++i) parts[hot.tables[i]].keys.push_back(hot.keys[i]);
    requests.clear();
    for (size_t t = 0; t < parts.size(); ++t) {
      Part& part = parts[t];
      if (part.keys.empty()) continue;
      part.rows.resize(part.keys.size() * tables()[t].row_bytes());
      part.versions.resize(part.keys.size());
      part.states.resize(part.keys.size());
      requests.push_back({t, part.keys.data(), part.keys.size(), part.rows.data(),
                          part.versions.data(), part.states.data()});
    }
    const HotRows::Ticket ticket = cache_->ticket();
    const ReadFailure failure = reader_->read(requests.data(), requests.size(),
                                              std::chrono::steady_clock::now() + kWarmUpPatience);
    for (const ReadRequest& request : requests) {
      first_overlay()->refuse_new(request);
      cache_->fill(request, ticket);
      if (on_gpu_ != nullptr) on_gpu_->fill(request.table, request.keys, request.count);
      for (size_t i = 0; i < request.count; ++i) {
        warmed_rows_ += request.states[i] == ReadState::kFound;
      }
    }
    // The store does not answer: the version serves with a cold cache rather than not at all.
    if (failure.code != Code::kOk) break;
  }
  if (on_gpu_ == nullptr) return;
  // The most used keys of the table of the most used key; any keys if none are known.
  std::vector<int64_t> keys;
  const size_t table = hot.keys.empty() ? 0 : hot.tables[0];
  for (size_t i = 0; i < hot.keys.size() && keys.size() < kWarmUpKeys; ++i) {
    if (hot.tables[i] == table) keys.push_back(hot.keys[i]);
  }
  for (int64_t key = 0; hot.keys.empty() && keys.size() < kWarmUpKeys; ++key) keys.push_back(key);
  on_gpu_->measure(table, keys.data(), keys.size());
}

std::shared_ptr<const Overlay> ServingTables::first_overlay() const {
  auto overlay = std::make_shared<Overlay>();
  overlay->version = options_.shown;
  overlay->fence = options_.fence;
  return overlay;
}

size_t ServingTables::number_of(const std::string& name) const {
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) {
    fail(Code::kNotFound, "the store of manifest %s has no table %s", manifest_path_.c_str(),
         name.c_str());
  }
  return found->second;
}

std::unique_ptr<UnfinishedLookup> ServingTables::begin(const ServingFeature* features, size_t count,
                                                       float* const* outputs,
                                                       const Executor& executor,
                                                       SampleCounts counts, const Overlay& overlay,
                                                       void* stream) const {
  if (counts.from_memory != nullptr && !stale_.load(std::memory_order_relaxed)) {
    std::fill_n(counts.from_memory, counts.samples, 0);
    counts.from_memory = nullptr;
  }
  LookupReport report;
  if (stream == nullptr) {
    return lookup_->begin(features, count, outputs, executor, counts, overlay, &report);
  }
  if (on_gpu_ == nullptr) fail(Code::kInternal, "a lookup on a GPU of tables that are not there");
  return begin_on_device(*lookup_, *on_gpu_, stream, features, count, outputs, executor, counts,
                         overlay, &report);
}

std::shared_ptr<const CutLayer> ServingTables::layer(const std::string& path,
                                                     RowVersion version) const {
  {
    const std::lock_guard lock(layers_mutex_);
    const auto found = layers_.find(path);
    if (found != layers_.end()) {
      const auto known = found->second.lock();
      if (known != nullptr && known->version() == version) return known;
      layers_.erase(found);
    }
  }
  // Read outside the lock: a large cut takes a while.
  auto read = std::make_shared<CutLayer>(path, version, tables());
  if (on_gpu_ != nullptr) read->set_on_device(on_gpu_->keys_of(*read));
  const std::lock_guard lock(layers_mutex_);
  for (auto known = layers_.begin(); known != layers_.end();) {
    known = known->second.expired() ? layers_.erase(known) : std::next(known);
  }
  layers_[path] = read;
  return read;
}

std::vector<std::shared_ptr<const CutLayer>> ServingTables::layers(
    const std::vector<LayerFile>& files) const {
  std::vector<std::shared_ptr<const CutLayer>> found, known;
  {
    const std::lock_guard lock(layers_mutex_);
    known = merged();
  }
  for (size_t at = 0; at < files.size();) {
    std::shared_ptr<const CutLayer> best;
    size_t covered = 0;
    for (const auto& merged : known) {
      const size_t same = common_files(*merged, files, at);
      // Its other cuts must not be newer than a listed one.
      const bool fits = same == merged->files().size() || at + same == files.size();
      if (fits && same > covered) {
        best = merged;
        covered = same;
      }
    }
    if (best == nullptr) {
      best = layer(files[at].path, files[at].version);
      covered = 1;
    }
    found.push_back(std::move(best));
    at += covered;
  }
  return found;
}

std::vector<std::shared_ptr<const CutLayer>> ServingTables::merged() const {
  std::vector<std::shared_ptr<const CutLayer>> found;
  for (auto known = merged_.begin(); known != merged_.end();) {
    found.push_back(known->lock());
    if (found.back() != nullptr) {
      ++known;
      continue;
    }
    found.pop_back();
    known = merged_.erase(known);
  }
  return found;
}

std::shared_ptr<const CutLayer> ServingTables::merge(
    const std::vector<std::shared_ptr<const CutLayer>>& layers) const {
  std::vector<LayerFile> files;
  for (const auto& layer : layers) {
    files.insert(files.end(), layer->files().begin(), layer->files().end());
  }
  {
    const std::lock_guard lock(layers_mutex_);
    for (const auto& known : merged()) {
      if (known->files() == files) return known;
    }
  }
  auto made = std::make_shared<CutLayer>(layers, tables());
  if (on_gpu_ != nullptr) made->set_on_device(on_gpu_->keys_of(*made));
  const std::lock_guard lock(layers_mutex_);
  merged_.push_back(made);
  return made;
}

void ServingTables::folded(const CutLayer& layer) const {
  if (cache_ == nullptr) return;
  layer.visit([&](size_t table, const int64_t* keys, size_t count, const std::byte* rows,
                  const RowVersion* versions) {
    cache_->update(table, keys, count, rows, versions);
    if (on_gpu_ != nullptr) on_gpu_->update(table, keys, count, rows, versions);
  });
}

void ServingTables::cache_up_to(RowVersion newest) const {
  if (cache_ != nullptr) cache_->set_newest(newest == 0 ? ~RowVersion{0} : newest);
}

void ServingTables::set_fence(RowVersion oldest) const {
  if (redis_ != nullptr) redis_->set_fence(oldest);
}

void ServingTables::check_fence_again() const {
  if (redis_ != nullptr) redis_->check_marks_again();
}

void ServingTables::forget_cached() const {
  if (cache_ != nullptr) cache_->clear();
  if (on_gpu_ != nullptr) on_gpu_->clear();
}

void ServingTables::set_topology(const std::string& topology) const {
  if (redis_ == nullptr) {
    fail(Code::kFailedPrecondition, "the store of manifest %s is embedded: it has no nodes",
         manifest_path_.c_str());
  }
  redis_->set_topology(topology);
}

void ServingTables::visit_counts(const Visit& visit) const {
  for (size_t t = 0; t < tables().size(); ++t) {
    const std::string& name = tables()[t].name;
    const LookupCounts looked = lookup_->counts(t);
    visit("cut_rows_read", name, static_cast<double>(looked.of_cuts), false);
    visit("fetched_rows", name, static_cast<double>(looked.fetched), false);
    visit("unknown_keys", name, static_cast<double>(looked.unknown), false);
    visit("failed_rows", name, static_cast<double>(looked.failed), false);
    visit("default_rows", name, static_cast<double>(looked.defaulted), false);
    if (cache_ == nullptr) continue;
    const HotCounts counts = cache_->counts(t);
    visit("cache_hits", name, static_cast<double>(counts.hits), false);
    visit("cache_misses", name, static_cast<double>(counts.misses), false);
    visit("cache_inserted_rows", name, static_cast<double>(counts.inserted), false);
    visit("cache_evicted_rows", name, static_cast<double>(counts.evicted), false);
    visit("cache_refused_rows", name, static_cast<double>(counts.refused), false);
    visit("cache_rows", name, static_cast<double>(counts.rows()), true);
  }
  if (cache_ != nullptr) {
    visit("cache_slots", "", static_cast<double>(cache_->slots()), true);
    visit("cache_warmed_rows", "", static_cast<double>(warmed_rows_), true);
    visit("cache_bytes", "", static_cast<double>(cache_->bytes()), true);
  }
  visit("shared_fetches", "", static_cast<double>(lookup_->waited()), false);
  if (on_gpu_ != nullptr) visit_gpu(visit);
  if (redis_ != nullptr) visit_redis(visit);
}

void ServingTables::visit_gpu(const Visit& visit) const {
  for (size_t t = 0; t < tables().size(); ++t) {
    const DeviceLookupCounts looked = on_gpu_->lookups(t);
    visit("gpu_cache_hits", tables()[t].name, static_cast<double>(looked.hits), false);
    visit("gpu_cache_misses", tables()[t].name, static_cast<double>(looked.misses), false);
  }
  const DeviceRowCounts counts = on_gpu_->counts();
  visit("gpu_cache_inserted_rows", "", static_cast<double>(counts.inserted), false);
  visit("gpu_cache_evicted_rows", "", static_cast<double>(counts.evicted), false);
  visit("gpu_cache_refused_rows", "", static_cast<double>(counts.refused), false);
  visit("gpu_cache_rows", "", static_cast<double>(counts.rows()), true);
  visit("gpu_cache_slots", "", static_cast<double>(on_gpu_->slots()), true);
  visit("gpu_cache_bytes", "", static_cast<double>(on_gpu_->bytes()), true);
  visit("gpu_cache_is_off", "", on_gpu_->why_off().empty() ? 0 : 1, true);
}

void ServingTables::visit_histograms(const VisitHistogram& visit) const {
  if (redis_ == nullptr) return;
  const RedisReadTimes times = redis_->read_times();
  visit("store_read_seconds", times.bounds.data(), times.bounds.size(), times.counts.data(),
        times.sum);
}

void ServingTables::visit_redis(const Visit& visit) const {
  redis_->visit_counts([&](const char* name, uint64_t count) {
    visit((std::string("store_") + name).c_str(), "", static_cast<double>(count), false);
  });
  for (const auto& node : redis_->routes().nodes()) {
    const std::pair<const char*, uint64_t> counts[] = {
        {"store_node_openings", node->breaker()->openings()},
        {"store_node_connects", node->connects.load()},
        {"store_node_failures", node->failures.load()},
        {"store_node_commands", node->commands.load()},
        {"store_node_bytes_in", node->bytes_in.load()},
    };
    const std::string& address = node->address().text;
    for (const auto& [name, count] : counts) {
      visit(name, address, static_cast<double>(count), false);
    }
    const bool is_closed = node->breaker()->state() == CircuitBreaker::State::kClosed;
    visit("store_node_is_shut_out", address, is_closed ? 0 : 1, true);
  }
}

}  // namespace hotrow
