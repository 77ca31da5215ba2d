#include "core/serving/lookup.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "core/base/status.h"
#include "core/base/unique.h"
#include "core/kernels/float_mode.h"

namespace hotrow {
namespace {

// The keys that a thread probes in one piece. Smaller lookups are not worth a second thread.
constexpr size_t kProbeKeys = 4096;
// Scratch memory that a thread keeps between lookups, in bytes.
constexpr size_t kMostKept = size_t{64} << 20;
// Scratch memories that no thread keeps.
constexpr size_t kMostSpares = 64;

// Grows, never shrinks: a vector that does both writes zeros each time.
template <typename T>
T* at_least(std::vector<T>& values, size_t size) {
  if (values.size() < size) values.resize(size);
  return values.data();
}

template <typename T>
size_t bytes_of(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

// The output of a key.
size_t output_of(const Segments& segments, size_t key) {
  if (segments.combiner == Combiner::kNone || segments.row_splits == nullptr) return key;
  const int64_t* const ends = segments.row_splits + 1;
  const int64_t* const end =
      std::upper_bound(ends, ends + segments.samples, static_cast<int64_t>(key));
  return static_cast<size_t>(end - ends);
}

// The sample that a key counts for.
size_t sample_of(const ServingFeature& feature, size_t key, size_t samples) {
  if (feature.samples != nullptr) return feature.samples[output_of(feature.segments, key)];
  return feature.segments.outputs() == samples ? output_of(feature.segments, key) : 0;
}

}  // namespace

// Memory of a lookup, kept by its thread.
struct ServingLookup::Scratch {
  // A table with misses.
  struct Missing {
    size_t table = 0;
    size_t begin = 0, end = 0;  // its misses in `sorted`
    std::vector<int64_t> keys;  // of these
    Unique unique;
    std::vector<std::byte> rows;
    std::vector<RowVersion> versions;
    std::vector<ReadState> states;
  };

  // The place of a probe's keys in the request.
  struct Origin {
    size_t feature;
    size_t begin;
  };

  std::vector<HotRows::Probe> probes;  // pieces of features
  std::vector<Origin> origins;         // of the probes
  std::vector<float> rows;             // of features that are pooled
  std::vector<size_t> row_of;          // feature -> its first float in rows, or kPlain
  std::vector<std::vector<HotRows::Miss>> misses_of;  // a task each
  std::vector<HotRows::Miss> misses, sorted;
  std::vector<size_t> ends;  // by table, in sorted
  std::vector<std::unique_ptr<Missing>> missing;
  size_t missing_tables = 0;
  std::vector<ReadRequest> requests;

  static constexpr size_t kPlain = std::numeric_limits<size_t>::max();

  // Bytes of all that grows with the keys of a request.
  size_t bytes() const {
    size_t bytes = bytes_of(rows) + bytes_of(misses) + bytes_of(sorted);
    for (const auto& task : misses_of) bytes += bytes_of(task);
    for (const auto& table : missing) {
      bytes += bytes_of(table->keys) + bytes_of(table->rows) + bytes_of(table->versions);
    }
    return bytes;
  }
};

// The scratch memory of a lookup. A thread keeps that of its last lookup for the next one. A lookup
// nested in another one (in a thread that helps an executor) gets its own, and a lookup may end in
// another thread than it began in.
class ServingLookup::Lease {
 public:
  Lease() : scratch_(std::move(kept())) {
    if (scratch_ == nullptr) scratch_ = spares().take();
    if (scratch_ == nullptr) scratch_ = std::make_unique<Scratch>();
  }
  ~Lease() {
    // Else a thread would keep the memory of a rare huge request for ever.
    if (scratch_ == nullptr || scratch_->bytes() > kMostKept) return;
    if (kept() == nullptr) {
      kept() = std::move(scratch_);
    } else {
      spares().give(std::move(scratch_));
    }
  }
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = delete;
  Scratch& operator*() { return *scratch_; }

 private:
  // Of lookups that began in another thread.
  class Spares {
   public:
    std::unique_ptr<Scratch> take() {
      const std::lock_guard lock(mutex_);
      if (spares_.empty()) return nullptr;
      std::unique_ptr<Scratch> spare = std::move(spares_.back());
      spares_.pop_back();
      return spare;
    }
    void give(std::unique_ptr<Scratch> spare) {
      const std::lock_guard lock(mutex_);
      if (spares_.size() < kMostSpares) spares_.push_back(std::move(spare));
    }

   private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Scratch>> spares_;
  };

  static std::unique_ptr<Scratch>& kept() {
    thread_local std::unique_ptr<Scratch> scratch;
    return scratch;
  }
  static Spares& spares() {
    static Spares* const spares = new Spares();  // threads may use it until the process ends
    return *spares;
  }
  std::unique_ptr<Scratch> scratch_;
};

class ServingLookup::Unfinished : public UnfinishedLookup {
 public:
  Unfinished(const ServingLookup& lookup, Lease lease, const ServingFeature* features, size_t count,
             float* const* outputs, SampleCounts counts, const Overlay& overlay,
             const LookupReport& report)
      : lookup_(lookup),
        lease_(std::move(lease)),
        features_(features, features + count),
        outputs_(outputs, outputs + count),
        counts_(counts),
        overlay_(overlay),
        report_(report) {}

  LookupReport finish(Deadline deadline, const Executor& executor) override {
    const IeeeFloatMode exact;
    Scratch& scratch = *lease_;
    lookup_.sort_misses(scratch);
    lookup_.fetch(scratch, overlay_, deadline, report_);
    lookup_.judge(scratch, report_);
    lookup_.place_rows(features_.data(), scratch, counts_);
    lookup_.pool(features_.data(), features_.size(), outputs_.data(), scratch, report_.keys,
                 executor);
    return report_;
  }

 private:
  const ServingLookup& lookup_;
  Lease lease_;
  const std::vector<ServingFeature> features_;
  const std::vector<float*> outputs_;
  const SampleCounts counts_;
  const Overlay& overlay_;
  LookupReport report_;
};

ServingLookup::ServingLookup(std::shared_ptr<const RowReader> reader,
                             std::shared_ptr<HotRows> cache, const ServingLookupOptions& options)
    : reader_(std::move(reader)),
      cache_(std::move(cache)),
      options_(options),
      counters_(new Counters[reader_->tables().size()]) {
  if (options_.share_fetches) flights_ = std::make_unique<SingleFlight>(*reader_);
  if (cache_ == nullptr) return;
  const std::vector<StoredTable>&read = reader_->tables(), &cached = cache_->tables();
  if (read.size() != cached.size()) {
    fail(Code::kInvalidArgument, "a cache of %zu tables for a reader of %zu", cached.size(),
         read.size());
  }
  for (size_t t = 0; t < read.size(); ++t) {
    if (read[t].width == cached[t].width && read[t].type == cached[t].type) continue;
    fail(Code::kInvalidArgument, "table %s: rows of %zu %s in the store, of %zu %s in the cache",
         read[t].name.c_str(), read[t].width, name_of(read[t].type), cached[t].width,
         name_of(cached[t].type));
  }
}

ServingLookup::~ServingLookup() = default;

LookupCounts ServingLookup::counts(size_t table) const {
  if (table >= reader_->tables().size()) {
    fail(Code::kInvalidArgument, "table number %zu; there are %zu tables", table,
         reader_->tables().size());
  }
  const Counters& c = counters_[table];
  LookupCounts counts;
  counts.of_cuts = c.of_cuts.load(std::memory_order_relaxed);
  counts.fetched = c.fetched.load(std::memory_order_relaxed);
  counts.unknown = c.unknown.load(std::memory_order_relaxed);
  counts.failed = c.failed.load(std::memory_order_relaxed);
  counts.defaulted = c.defaulted.load(std::memory_order_relaxed);
  return counts;
}

void ServingLookup::check(const ServingFeature* features, size_t count, uint64_t* keys) const {
  const size_t tables = reader_->tables().size();
  *keys = 0;
  for (size_t f = 0; f < count; ++f) {
    const ServingFeature& feature = features[f];
    if (feature.table >= tables) {
      fail(Code::kInvalidArgument, "feature %s: table number %zu; there are %zu tables",
           feature.name, feature.table, tables);
    }
    check_segments(feature.segments, feature.name);
    *keys += feature.segments.keys;
  }
  if (*keys > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    fail(Code::kInvalidArgument, "a lookup of %llu keys; at most 2147483647",
         static_cast<unsigned long long>(*keys));
  }
}

// Checks the features and writes the probes. Rows of plain features go to the output, rows of other
// features to the scratch memory. Returns the number of keys.
uint64_t ServingLookup::prepare(const ServingFeature* features, size_t count, float* const* outputs,
                                Scratch& scratch) const {
  const std::vector<StoredTable>& tables = reader_->tables();
  uint64_t keys = 0;
  check(features, count, &keys);
  size_t floats = 0;
  scratch.row_of.assign(count, Scratch::kPlain);
  for (size_t f = 0; f < count; ++f) {
    const ServingFeature& feature = features[f];
    if (feature.segments.plain()) continue;
    scratch.row_of[f] = floats;
    floats += feature.segments.keys * tables[feature.table].width;
  }
  float* const rows = at_least(scratch.rows, floats);
  scratch.probes.clear();
  scratch.origins.clear();
  for (size_t f = 0; f < count; ++f) {
    const ServingFeature& feature = features[f];
    const size_t width = tables[feature.table].width;
    float* const to = scratch.row_of[f] == Scratch::kPlain ? outputs[f] : rows + scratch.row_of[f];
    for (size_t begin = 0; begin < feature.segments.keys; begin += kProbeKeys) {
      HotRows::Probe probe;
      probe.table = feature.table;
      probe.keys = feature.keys + begin;
      probe.count = std::min(kProbeKeys, feature.segments.keys - begin);
      probe.rows = to + begin * width;
      scratch.probes.push_back(probe);
      scratch.origins.push_back({f, begin});
    }
  }
  return keys;
}

// Writes the rows of some probes that are cached or in a layer, and lists the other keys in order.
void ServingLookup::gather(const HotRows::Probe* probes, size_t count, const Overlay& overlay,
                           std::vector<HotRows::Miss>* misses) const {
  misses->clear();
  if (cache_ != nullptr) {
    cache_->gather(probes, count, misses);
  } else {
    for (uint32_t p = 0; p < count; ++p) {
      for (uint32_t i = 0; i < probes[p].count; ++i) misses->push_back({p, i});
    }
  }
  if (overlay.layers.empty()) return;
  overlay.lay_over(reader_->tables(), probes, count, misses, [&](size_t table, size_t keys) {
    counters_[table].of_cuts.fetch_add(keys, std::memory_order_relaxed);
  });
}

// The same for all probes.
void ServingLookup::probe(Scratch& scratch, const Overlay& overlay,
                          const Executor& executor) const {
  const std::vector<HotRows::Probe>& probes = scratch.probes;
  size_t keys = 0;
  for (const HotRows::Probe& probe : probes) keys += probe.count;
  if (executor.threads() == 1 || keys < 2 * kProbeKeys) {
    gather(probes.data(), probes.size(), overlay, &scratch.misses);
    return;
  }
  // Tasks of neighbouring probes with about kProbeKeys keys.
  std::vector<size_t> ends;
  for (size_t p = 0, in_task = 0; p < probes.size(); ++p) {
    in_task += probes[p].count;
    if (in_task < kProbeKeys && p + 1 < probes.size()) continue;
    ends.push_back(p + 1);
    in_task = 0;
  }
  if (scratch.misses_of.size() < ends.size()) scratch.misses_of.resize(ends.size());
  executor.run(ends.size(), [&](size_t task) {
    const IeeeFloatMode exact;
    const size_t first = task == 0 ? 0 : ends[task - 1];
    std::vector<HotRows::Miss>& misses = scratch.misses_of[task];
    gather(probes.data() + first, ends[task] - first, overlay, &misses);
    for (HotRows::Miss& miss : misses) miss.probe += static_cast<uint32_t>(first);
  });
  scratch.misses.clear();
  for (size_t task = 0; task < ends.size(); ++task) {
    const std::vector<HotRows::Miss>& misses = scratch.misses_of[task];
    scratch.misses.insert(scratch.misses.end(), misses.begin(), misses.end());
  }
}

void ServingLookup::count_from_memory(const ServingFeature* features, const Scratch& scratch,
                                      SampleCounts counts) const {
  const auto sample = [&](size_t probe, size_t position) {
    const Scratch::Origin origin = scratch.origins[probe];
    return sample_of(features[origin.feature], origin.begin + position, counts.samples);
  };
  for (size_t p = 0; p < scratch.probes.size(); ++p) {
    for (size_t i = 0; i < scratch.probes[p].count; ++i) ++counts.from_memory[sample(p, i)];
  }
  for (const HotRows::Miss& miss : scratch.misses) {
    --counts.from_memory[sample(miss.probe, miss.position)];
  }
}

// Groups the misses by table, and finds each table's distinct keys.
void ServingLookup::sort_misses(Scratch& scratch) const {
  const std::vector<HotRows::Probe>& probes = scratch.probes;
  const size_t tables = reader_->tables().size();
  scratch.ends.assign(tables + 1, 0);
  for (const HotRows::Miss& miss : scratch.misses) ++scratch.ends[probes[miss.probe].table + 1];
  scratch.missing_tables = 0;
  for (size_t t = 0; t < tables; ++t) {
    const size_t begin = scratch.ends[t], end = begin + scratch.ends[t + 1];
    scratch.ends[t + 1] = end;
    if (begin == end) continue;
    if (scratch.missing.size() == scratch.missing_tables) {
      scratch.missing.push_back(std::make_unique<Scratch::Missing>());
    }
    Scratch::Missing& missing = *scratch.missing[scratch.missing_tables++];
    missing.table = t;
    missing.begin = begin;
    missing.end = end;
  }
  HotRows::Miss* const sorted = at_least(scratch.sorted, scratch.misses.size());
  for (const HotRows::Miss& miss : scratch.misses) {
    sorted[scratch.ends[probes[miss.probe].table]++] = miss;
  }
  for (size_t m = 0; m < scratch.missing_tables; ++m) {
    Scratch::Missing& missing = *scratch.missing[m];
    int64_t* const keys = at_least(missing.keys, missing.end - missing.begin);
    for (size_t i = missing.begin; i < missing.end; ++i) {
      keys[i - missing.begin] = probes[sorted[i].probe].keys[sorted[i].position];
    }
    missing.unique.run(keys, missing.end - missing.begin);
  }
}

// Reads the distinct keys that are missing, all tables together, and offers them to the cache.
void ServingLookup::fetch(Scratch& scratch, const Overlay& overlay, Deadline deadline,
                          LookupReport& report) const {
  scratch.requests.clear();
  for (size_t m = 0; m < scratch.missing_tables; ++m) {
    Scratch::Missing& missing = *scratch.missing[m];
    ReadRequest request;
    request.table = missing.table;
    request.keys = missing.unique.keys();
    request.count = missing.unique.size();
    request.rows =
        at_least(missing.rows, request.count * reader_->tables()[missing.table].row_bytes());
    request.versions = at_least(missing.versions, request.count);
    request.states = at_least(missing.states, request.count);
    scratch.requests.push_back(request);
    report.fetched += request.count;
    counters_[missing.table].fetched.fetch_add(request.count, std::memory_order_relaxed);
  }
  const HotRows::Ticket ticket = cache_ == nullptr ? 0 : cache_->ticket();
  bool too_new = false;
  const auto refuse_new = [&](const ReadRequest* requests, size_t count) {
    for (size_t r = 0; r < count; ++r) too_new |= overlay.refuse_new(requests[r]);
  };
  const auto landed = [&](const ReadRequest* requests, size_t count) {
    // Before the cache takes them: a later hit could not detect that they are too new.
    refuse_new(requests, count);
    if (cache_ == nullptr) return;
    for (size_t r = 0; r < count; ++r) cache_->fill(requests[r], ticket);
  };
  const ReadRequest* const requests = scratch.requests.data();
  if (flights_ != nullptr) {
    report.failure = flights_->read(requests, scratch.requests.size(), ticket, deadline, landed);
  } else {
    report.failure = reader_->read(requests, scratch.requests.size(), deadline);
    landed(requests, scratch.requests.size());
  }
  // Also check rows that other lookups read: they may show another cut.
  refuse_new(requests, scratch.requests.size());
  if (too_new && options_.takes_no_cuts) {
    fail(Code::kFailedPrecondition,
         "the store has rows of an incremental export that this binding does not show: an export "
         "has overruled the binding, which held up others for too long (export.max_hold_seconds, "
         "export.max_hold_bytes): bind the version again; or the model was not loaded by the "
         "binding's load()");
  }
  if (too_new && report.failure.code == Code::kOk) {
    report.failure = {Code::kUnavailable, "the store has rows of a cut that is not taken yet"};
  }
}

// Counts the results of the keys. Fails if some could not be read and the policy is to fail.
void ServingLookup::judge(Scratch& scratch, LookupReport& report) const {
  const Scratch::Missing* first_failed = nullptr;
  uint64_t of_first = 0;
  for (size_t m = 0; m < scratch.missing_tables; ++m) {
    const Scratch::Missing& missing = *scratch.missing[m];
    uint64_t unknown = 0, failed = 0;
    for (size_t u = 0; u < missing.unique.size(); ++u) {
      unknown += missing.states[u] == ReadState::kUnknown;
      failed += missing.states[u] == ReadState::kFailed;
    }
    report.unknown += unknown;
    report.failed += failed;
    Counters& counters = counters_[missing.table];
    if (unknown > 0) counters.unknown.fetch_add(unknown, std::memory_order_relaxed);
    if (failed == 0) continue;
    counters.failed.fetch_add(failed, std::memory_order_relaxed);
    if (first_failed != nullptr) continue;
    first_failed = &missing;
    of_first = failed;
  }
  if (first_failed == nullptr || options_.on_store_failure == OnStoreFailure::kDefault) return;
  fail(Code::kUnavailable,
       "table %s: %llu of %zu rows could not be read: %s; on_store_failure: default would answer "
       "with default rows",
       reader_->tables()[first_failed->table].name.c_str(),
       static_cast<unsigned long long>(of_first), first_failed->unique.size(),
       report.failure.code == Code::kOk ? "the reader does not say why"
                                        : report.failure.message.c_str());
}

// Writes the fetched rows to all places that need them.
void ServingLookup::place_rows(const ServingFeature* features, Scratch& scratch,
                               SampleCounts counts) const {
  for (size_t m = 0; m < scratch.missing_tables; ++m) {
    const Scratch::Missing& missing = *scratch.missing[m];
    const StoredTable& table = reader_->tables()[missing.table];
    uint64_t defaulted = 0;
    const size_t row_bytes = table.row_bytes();
    const int32_t* const inverse = missing.unique.inverse();
    for (size_t i = missing.begin; i < missing.end; ++i) {
      const HotRows::Miss miss = scratch.sorted[i];
      const auto u = static_cast<size_t>(inverse[i - missing.begin]);
      float* const to = scratch.probes[miss.probe].rows + size_t{miss.position} * table.width;
      if (missing.states[u] == ReadState::kFound) {
        decode_row(table.type, missing.rows.data() + u * row_bytes, table.width, to);
      } else {
        std::fill_n(to, table.width, table.default_value);
        if (missing.states[u] != ReadState::kFailed) continue;
        ++defaulted;
        if (counts.defaulted == nullptr || counts.samples == 0) continue;
        const Scratch::Origin origin = scratch.origins[miss.probe];
        ++counts.defaulted[sample_of(features[origin.feature], origin.begin + miss.position,
                                     counts.samples)];
      }
    }
    if (defaulted > 0) {
      counters_[missing.table].defaulted.fetch_add(defaulted, std::memory_order_relaxed);
    }
  }
}

void ServingLookup::pool(const ServingFeature* features, size_t count, float* const* outputs,
                         const Scratch& scratch, uint64_t keys, const Executor& executor) const {
  const Executor& pooling = keys < 2 * kProbeKeys ? Executor() : executor;
  pooling.run(count, [&](size_t f) {
    if (scratch.row_of[f] == Scratch::kPlain) return;
    const Segments& segments = features[f].segments;
    const size_t width = reader_->tables()[features[f].table].width;
    const IeeeFloatMode exact_here;
    pool_rows(segments, scratch.rows.data() + scratch.row_of[f], width, outputs[f]);
  });
}

std::unique_ptr<UnfinishedLookup> ServingLookup::begin(const ServingFeature* features, size_t count,
                                                       float* const* outputs,
                                                       const Executor& executor,
                                                       SampleCounts counts, const Overlay& overlay,
                                                       LookupReport* report) const {
  if (counts.defaulted != nullptr) std::fill_n(counts.defaulted, counts.samples, 0);
  if (counts.from_memory != nullptr) std::fill_n(counts.from_memory, counts.samples, 0);
  Lease lease;
  Scratch& scratch = *lease;
  const IeeeFloatMode exact;
  *report = {};
  report->keys = prepare(features, count, outputs, scratch);
  probe(scratch, overlay, executor);
  report->hits = report->keys - scratch.misses.size();
  if (counts.from_memory != nullptr && counts.samples > 0) {
    count_from_memory(features, scratch, counts);
  }
  if (scratch.misses.empty()) {
    pool(features, count, outputs, scratch, report->keys, executor);
    return nullptr;
  }
  return std::make_unique<Unfinished>(*this, std::move(lease), features, count, outputs, counts,
                                      overlay, *report);
}

LookupReport ServingLookup::lookup(const ServingFeature* features, size_t count,
                                   float* const* outputs, Deadline deadline,
                                   const Executor& executor, SampleCounts counts,
                                   const Overlay& overlay) const {
  LookupReport report;
  auto rest = begin(features, count, outputs, executor, counts, overlay, &report);
  return rest == nullptr ? report : rest->finish(deadline, executor);
}

}  // namespace hotrow
