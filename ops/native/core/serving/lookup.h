// The lookup of a server: all features of all tables of a request in one call. Cached rows are
// copied straight to the outputs; the others are read together, once each.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/executor.h"
#include "core/kernels/pooling.h"
#include "core/serving/cut_layer.h"
#include "core/serving/hot_rows.h"
#include "core/serving/single_flight.h"
#include "core/store/row_reader.h"

namespace hotrow {

// The result of a lookup for keys that the store could not read.
enum class OnStoreFailure : int {
  kFail = 0,     // none: the lookup fails with Unavailable
  kDefault = 1,  // default rows, which the report counts
};

struct ServingLookupOptions {
  OnStoreFailure on_store_failure = OnStoreFailure::kFail;
  // Concurrent lookups fetch a row once. A lookup may then get a row as of the request of another
  // lookup still in flight, unless HotRows::update reported a change in between. Not worth it for
  // rows in memory.
  bool share_fetches = true;
  // The caller takes no cuts by itself: a row that is too new for the overlay ends the lookup with
  // FailedPrecondition, whatever on_store_failure says.
  bool takes_no_cuts = false;
};

// A feature of a request: its keys (N) and how they form samples.
struct ServingFeature {
  const char* name = "";  // for messages
  size_t table = 0;       // index into RowReader::tables()
  const int64_t* keys = nullptr;
  Segments segments;
  // (outputs) the samples that its outputs count for; null: as SampleCounts says.
  const uint32_t* samples = nullptr;
};

// Counts for each sample. A key of a feature with another number of outputs than `samples` counts
// for the first sample. `lookup` sets all values of the arrays that are not null.
struct SampleCounts {
  int32_t* defaulted = nullptr;    // (samples): keys with default rows because the store failed
  int32_t* from_memory = nullptr;  // (samples): keys whose rows were cached or in a layer of a cut
  size_t samples = 0;
};

// The counts and failure of a lookup.
struct LookupReport {
  uint64_t keys = 0;     // of all features, duplicates too
  uint64_t hits = 0;     // of these: cached, or in a layer of a cut
  uint64_t fetched = 0;  // distinct keys read from the reader, or by another lookup's fetch
  uint64_t unknown = 0;  // of these: the store has no row; they read the default row
  uint64_t failed = 0;   // of these: could not be read; they read the default row, too
  ReadFailure failure;   // the reason, if any failed
};

// Sums of a table's lookups since the start. HotRows counts the hits of the cache.
struct LookupCounts {
  uint64_t of_cuts = 0;  // keys, duplicates too, whose rows were in a layer of a cut
  uint64_t fetched = 0;
  uint64_t unknown = 0;
  uint64_t failed = 0;
  uint64_t defaulted = 0;  // keys, duplicates too, that read the default row because of a failure
};

// A lookup whose rows are not all in memory.
class UnfinishedLookup {
 public:
  virtual ~UnfinishedLookup() = default;
  // Reads the other rows, until `deadline` at the latest; once, in any thread. Fails as
  // ServingLookup::lookup.
  virtual LookupReport finish(Deadline deadline, const Executor& executor) = 0;
};

// Safe from several threads.
class ServingLookup {
 public:
  // cache: of the reader's tables; null: all rows are read. Fails with InvalidArgument when the
  // cache has other tables.
  ServingLookup(std::shared_ptr<const RowReader> reader, std::shared_ptr<HotRows> cache,
                const ServingLookupOptions& options);
  ~ServingLookup();
  ServingLookup(const ServingLookup&) = delete;
  ServingLookup& operator=(const ServingLookup&) = delete;

  // outputs[f]: (B_f, width of its table), or (N_f, width) without a combiner. Sums are taken in
  // the order of the keys, with the same bits whatever is cached. Large lookups use the executor's
  // threads. overlay: the layers over the rows of store and cache. Fails with InvalidArgument for
  // wrong segments. With OnStoreFailure::kFail it fails with Unavailable, naming the table and the
  // reason. A row that is too new for the overlay counts as a row that could not be read, or ends
  // the lookup with FailedPrecondition (takes_no_cuts).
  LookupReport lookup(const ServingFeature* features, size_t count, float* const* outputs,
                      Deadline deadline, const Executor& executor = Executor(),
                      SampleCounts counts = {}, const Overlay& overlay = Overlay()) const;

  // The same in two parts: takes the rows that are in memory. Null: these were all, and the lookup
  // is over. Else keys, outputs, counts, overlay and this object must stay until the lookup is
  // finished.
  std::unique_ptr<UnfinishedLookup> begin(const ServingFeature* features, size_t count,
                                          float* const* outputs, const Executor& executor,
                                          SampleCounts counts, const Overlay& overlay,
                                          LookupReport* report) const;

  // Fails as `begin` does for wrong features. keys: of all of them.
  void check(const ServingFeature* features, size_t count, uint64_t* keys) const;

  const std::vector<StoredTable>& tables() const { return reader_->tables(); }
  LookupCounts counts(size_t table) const;
  // Keys that waited for another lookup's fetch.
  uint64_t waited() const { return flights_ == nullptr ? 0 : flights_->waited(); }

 private:
  struct Scratch;
  class Lease;
  class Unfinished;
  struct Counters {
    std::atomic<uint64_t> of_cuts{0}, fetched{0}, unknown{0}, failed{0}, defaulted{0};
  };

  uint64_t prepare(const ServingFeature* features, size_t count, float* const* outputs,
                   Scratch& scratch) const;
  void probe(Scratch& scratch, const Overlay& overlay, const Executor& executor) const;
  void gather(const HotRows::Probe* probes, size_t count, const Overlay& overlay,
              std::vector<HotRows::Miss>* misses) const;
  void count_from_memory(const ServingFeature* features, const Scratch& scratch,
                         SampleCounts counts) const;
  void sort_misses(Scratch& scratch) const;
  void fetch(Scratch& scratch, const Overlay& overlay, Deadline deadline,
             LookupReport& report) const;
  void judge(Scratch& scratch, LookupReport& report) const;
  void place_rows(const ServingFeature* features, Scratch& scratch, SampleCounts counts) const;
  void pool(const ServingFeature* features, size_t count, float* const* outputs,
            const Scratch& scratch, uint64_t keys, const Executor& executor) const;

  std::shared_ptr<const RowReader> reader_;
  std::shared_ptr<HotRows> cache_;
  ServingLookupOptions options_;
  std::unique_ptr<SingleFlight> flights_;
  std::unique_ptr<Counters[]> counters_;  // a table each
};

}  // namespace hotrow
