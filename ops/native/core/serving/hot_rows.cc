#include "core/serving/hot_rows.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/status.h"
#include "core/store/store_layout.h"

namespace hotrow {
namespace {

constexpr uint32_t kWays = HotSet::kWays;
constexpr size_t kTablesOfPool = 256;  // numbers of 8 bits
constexpr size_t kThreads = 16;        // with counters of their own
constexpr int kReadTries = 4;          // tries of a reader whose set keeps changing
constexpr int kSpins = 64;             // spins of a writer, before it yields its core
constexpr size_t kStageKeys = 16;      // keys of a stage of a lookup
constexpr size_t kLine = 64;
constexpr size_t kMostLinesAhead = 8;  // of a row; the processor fetches the rest by itself
constexpr size_t kSmallRow = 2048;     // bytes that are decoded from the stack
constexpr size_t kChangesAhead = 8;    // keys, of changes
constexpr size_t kRoomOverStored = 2;
// A set's frequencies are halved after this many new rows.
constexpr uint32_t kNewcomersToDecay = 12 * kWays;
constexpr uint8_t kNewcomersToTick = kWays / 4;
// Makes the salts of tables differ from hashes of keys.
constexpr uint64_t kSalt = 0x5851f42d4c957f2d;
// Uses are counted one by one up to this.
constexpr uint8_t kCountedUses = 8;

using Word = std::atomic<uint64_t>;

uint8_t tag_of(uint64_t hash) {
  const auto tag = static_cast<uint8_t>(hash >> 8);
  return tag == 0 ? 1 : tag;
}

size_t words_of(size_t bytes) { return (bytes + sizeof(Word) - 1) / sizeof(Word); }

// Copies word by word; no word is torn.
void read_words(const Word* from, size_t bytes, std::byte* to) {
  size_t at = 0;
#pragma GCC unroll 8
  for (; at + sizeof(Word) <= bytes; at += sizeof(Word), ++from) {
    const uint64_t word = from->load(std::memory_order_acquire);
    std::memcpy(to + at, &word, sizeof(word));
  }
  if (at < bytes) {
    const uint64_t word = from->load(std::memory_order_acquire);
    std::memcpy(to + at, &word, bytes - at);
  }
}

void write_words(const std::byte* from, size_t bytes, Word* to) {
  for (size_t at = 0; at < bytes; at += sizeof(Word), ++to) {
    uint64_t word = 0;
    std::memcpy(&word, from + at, std::min(sizeof(word), bytes - at));
    to->store(word, std::memory_order_release);
  }
}

// Waits: a writer holds a set for less than a microsecond, unless its thread was descheduled.
void lock(HotSet& set) {
  for (int spins = 0; !set.try_lock(); ++spins) {
    if (spins < kSpins) {
      pause_briefly();
    } else {
      sched_yield();
    }
  }
}

size_t number_of_thread() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number % kThreads;
}

}  // namespace

struct HotRows::Pool {
  size_t row_bytes;
  size_t words;                // of a row
  std::vector<size_t> tables;  // by number in the pool
  std::vector<uint64_t> salts;
  uint64_t stored = 0;  // rows that its tables may have
  bool bounded = true;  // all tables state their numbers of rows
  AnonymousArray<HotSet> sets;
  AnonymousArray<Word> rows;  // (slots, words)

  size_t slot_bytes() const { return sizeof(HotSet) / kWays + words * sizeof(Word); }
  size_t set_of(uint64_t hash) const {
    return static_cast<size_t>((static_cast<unsigned __int128>(hash) * sets.size()) >> 64);
  }
  Word* rows_of(size_t set) { return rows.data() + set * kWays * words; }
};

// A key during a lookup.
struct HotRows::Step {
  HotSet* set;
  const Word* rows;  // of the set
  const Place* place;
  int64_t key;
  uint32_t probe;
  uint32_t position;
  uint8_t tag;
};

// The keys of all probes, one after the other.
class HotRows::Steps {
 public:
  Steps(const HotRows& rows, const Probe* probes, size_t count)
      : rows_(rows), probes_(probes), count_(count) {}

  // Writes up to kStageKeys steps, prefetches their sets, and returns how many.
  size_t next(Step* steps) {
    size_t n = 0;
    for (; probe_ < count_; ++probe_, position_ = 0) {
      const Probe& probe = probes_[probe_];
      const Place& place = rows_.place(probe.table);
      Pool& pool = *place.pool;
      for (; position_ < probe.count; ++position_) {
        if (n == kStageKeys) return n;
        Step& step = steps[n++];
        step.key = probe.keys[position_];
        const uint64_t hash = mix64(static_cast<uint64_t>(step.key) ^ place.salt);
        const size_t set = pool.set_of(hash);
        step.set = &pool.sets[set];
        __builtin_prefetch(step.set);
        step.rows = pool.rows_of(set);
        step.place = &place;
        step.probe = static_cast<uint32_t>(probe_);
        step.position = static_cast<uint32_t>(position_);
        step.tag = tag_of(hash);
      }
    }
    return n;
  }

  // Prefetches what the steps read if their keys are cached.
  static void approach(const Step* steps, size_t n) {
    for (const Step* step = steps; step < steps + n; ++step) {
      const uint32_t fits = step->set->match(step->tag, step->place->number);
      if (fits == 0) continue;
      const uint32_t way = static_cast<uint32_t>(__builtin_ctz(fits));
      __builtin_prefetch(&step->set->keys[way]);
      const auto* row = reinterpret_cast<const std::byte*>(step->rows + way * step->place->words);
      const size_t bytes = std::min<size_t>(step->place->row_bytes, kMostLinesAhead * kLine);
      for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at);
      __builtin_prefetch(row + bytes - 1);
    }
  }

 private:
  const HotRows& rows_;
  const Probe* probes_;
  size_t count_;
  size_t probe_ = 0, position_ = 0;
};

HotRows::HotRows(std::vector<StoredTable> tables, const HotRowsOptions& options)
    : tables_(std::move(tables)), policy_(options.policy) {
  if ((options.rows == 0) == (options.bytes == 0)) {
    fail(Code::kInvalidArgument,
         "a cache of hot rows of %llu rows and %llu bytes; give one of them, above 0",
         static_cast<unsigned long long>(options.rows),
         static_cast<unsigned long long>(options.bytes));
  }
  for (size_t t = 0; t < tables_.size(); ++t) {
    const StoredTable& table = tables_[t];
    if (table.width == 0) {
      fail(Code::kInvalidArgument, "table %s: a width of 0", table.name.c_str());
    }
    Pool* pool = nullptr;
    for (const auto& p : pools_) {
      if (p->row_bytes == table.row_bytes() && p->tables.size() < kTablesOfPool) pool = p.get();
    }
    if (pool == nullptr) {
      pools_.push_back(std::make_unique<Pool>());
      pool = pools_.back().get();
      pool->row_bytes = table.row_bytes();
      pool->words = words_of(table.row_bytes());
    }
    const uint64_t salt = combine64(kSalt, t);
    places_.push_back(Place{pool, salt, static_cast<uint8_t>(pool->tables.size()), table.type,
                            static_cast<uint32_t>(table.width),
                            static_cast<uint32_t>(table.row_bytes()),
                            static_cast<uint32_t>(pool->words)});
    pool->tables.push_back(t);
    pool->salts.push_back(salt);
    pool->stored += std::max<uint64_t>(table.most_rows(), 1);
    pool->bounded = pool->bounded && table.most_rows() > 0;
  }
  double stored_rows = 0, stored_bytes = 0;
  for (const auto& pool : pools_) {
    const auto stored = static_cast<double>(pool->stored);
    stored_rows += stored;
    stored_bytes += stored * static_cast<double>(pool->slot_bytes());
  }
  for (const auto& pool : pools_) {
    const double share = options.rows > 0 ? static_cast<double>(options.rows) / stored_rows
                                          : static_cast<double>(options.bytes) / stored_bytes;
    double rows = share * static_cast<double>(pool->stored);
    if (pool->bounded) {
      rows = std::min(rows, static_cast<double>(kRoomOverStored * pool->stored) + kWays);
    }
    const double sets = std::max(rows / kWays, 1.0);
    if (sets > std::numeric_limits<uint32_t>::max()) {
      fail(Code::kInvalidArgument, "a cache of %.0f rows of %zu bytes; at most %.0f", rows,
           pool->row_bytes, static_cast<double>(std::numeric_limits<uint32_t>::max()) * kWays);
    }
    pool->sets = AnonymousArray<HotSet>(static_cast<size_t>(sets));
    pool->rows = AnonymousArray<Word>(pool->sets.size() * kWays * pool->words);
  }
  counters_ = AnonymousArray<Counters>(kThreads * tables_.size());
}

HotRows::~HotRows() = default;

const HotRows::Place& HotRows::place(size_t table) const {
  if (__builtin_expect(table >= places_.size(), 0)) {
    fail(Code::kInvalidArgument, "table number %zu; there are %zu tables", table, places_.size());
  }
  return places_[table];
}

HotRows::Counters& HotRows::counters(size_t table) const {
  // All elements of the array are atomic; only its owner is const.
  auto* all = const_cast<Counters*>(counters_.data());
  return all[number_of_thread() * tables_.size() + table];
}

// --- lookups -------------------------------------------------------------------------------------

// Approximate counters (R. Morris, Counting large numbers of events in small registers, 1978): they
// rise ever more rarely, by ever more, and saturate. So the most read rows are written least; else
// their cache lines would move between the cores that read them.
void HotRows::note_use(HotSet& set, uint32_t way, uint32_t* random) const {
  const uint8_t use = set.uses[way].load(std::memory_order_relaxed);
  if (policy_ == CachePolicy::kLru) {
    const uint8_t now = set.now.load(std::memory_order_relaxed);
    if (use != now) set.uses[way].store(now, std::memory_order_relaxed);
    return;
  }
  if (use == 0xff) return;
  uint32_t more = 1;
  if (use >= kCountedUses) {
    more = 1u << (29 - __builtin_clz(use));  // 2 from 8, 4 from 16, ...
    *random = *random * 1664525u + 1013904223u;
    if ((*random >> 16 & (more - 1)) != 0) return;
  }
  set.uses[way].store(static_cast<uint8_t>(std::min(use + more, 0xffu)), std::memory_order_relaxed);
}

// Copies a cached row to the probe's output, through `encoded` if it must be decoded. False: the
// row is not cached, or its set keeps changing.
__attribute__((always_inline)) inline bool HotRows::copy(const Step& step, const Probe& probe,
                                                         std::byte* encoded,
                                                         uint32_t* random) const {
  HotSet& set = *step.set;
  const Place& place = *step.place;
  const bool decode = probe.records == nullptr && place.type != StoredType::kFloat32;
  std::byte* to = encoded;
  if (probe.records != nullptr) {
    to = probe.records + size_t{step.position} * place.row_bytes;
  } else if (!decode) {
    to = reinterpret_cast<std::byte*>(probe.rows + size_t{step.position} * place.width);
  }
  for (int tries = 0; tries < kReadTries; ++tries) {
    const uint32_t before = set.sequence.load(std::memory_order_acquire);
    if (before % 2 != 0) {
      pause_briefly();
      continue;
    }
    const uint32_t way = set.find(step.tag, place.number, step.key);
    if (way != HotSet::kNone) read_words(step.rows + way * place.words, place.row_bytes, to);
    if (set.sequence.load(std::memory_order_relaxed) != before) continue;
    if (way == HotSet::kNone) return false;
    // Noting a use does no harm if the row has left meanwhile.
    note_use(set, way, random);
    if (decode) {
      decode_row(place.type, to, place.width, probe.rows + size_t{step.position} * place.width);
    }
    return true;
  }
  return false;
}

void HotRows::gather(const Probe* probes, size_t count, std::vector<Miss>* misses) {
  alignas(kLine) std::byte small[kSmallRow];
  std::vector<std::byte> large;
  for (size_t p = 0; p < count; ++p) {
    if (probes[p].count > std::numeric_limits<uint32_t>::max()) {
      fail(Code::kInvalidArgument, "%zu keys of a lookup; at most %u", probes[p].count,
           std::numeric_limits<uint32_t>::max());
    }
    const size_t row_bytes = place(probes[p].table).row_bytes;
    if (row_bytes > std::max(kSmallRow, large.size())) large.resize(row_bytes);
  }
  std::byte* const encoded = large.empty() ? small : large.data();
  thread_local uint32_t random = 1;
  uint32_t seed = random;
  const size_t first_miss = misses->size();
  // While the keys of a block are copied, rows of the next one are on their way, and sets of the
  // one after that.
  Step ring[3][kStageKeys];
  Steps steps(*this, probes, count);
  size_t sizes[3] = {steps.next(ring[0]), 0, 0};
  sizes[1] = steps.next(ring[1]);
  Steps::approach(ring[0], sizes[0]);
  for (size_t b = 0; sizes[b % 3] > 0; ++b) {
    Step* ahead = ring[(b + 2) % 3];
    sizes[(b + 2) % 3] = steps.next(ahead);
    Steps::approach(ring[(b + 1) % 3], sizes[(b + 1) % 3]);
    const Step* now = ring[b % 3];
    for (size_t i = 0; i < sizes[b % 3]; ++i) {
      if (copy(now[i], probes[now[i].probe], encoded, &seed)) continue;
      misses->push_back(Miss{now[i].probe, now[i].position});
    }
  }
  random = seed;
  size_t m = first_miss;
  for (size_t p = 0; p < count; ++p) {
    const size_t begin = m;
    while (m < misses->size() && (*misses)[m].probe == p) ++m;
    if (m > begin) add(probes[p].table, kMisses, m - begin);
    if (probes[p].count > m - begin) add(probes[p].table, kHits, probes[p].count - (m - begin));
  }
}

void HotRows::read(const ReadRequest& read) const {
  const Place& place = this->place(read.table);
  Pool& pool = *place.pool;
  const auto set_of = [&](size_t i) {
    return pool.set_of(mix64(static_cast<uint64_t>(read.keys[i]) ^ place.salt));
  };
  for (size_t i = 0; i < read.count; ++i) {
    if (i + kChangesAhead < read.count) __builtin_prefetch(&pool.sets[set_of(i + kChangesAhead)]);
    const uint8_t tag = tag_of(mix64(static_cast<uint64_t>(read.keys[i]) ^ place.salt));
    const size_t number = set_of(i);
    const HotSet& set = pool.sets[number];
    read.states[i] = ReadState::kUnknown;
    for (int tries = 0; tries < kReadTries; ++tries) {
      const uint32_t before = set.sequence.load(std::memory_order_acquire);
      if (before % 2 != 0) {
        pause_briefly();
        continue;
      }
      const uint32_t way = set.find(tag, place.number, read.keys[i]);
      if (way != HotSet::kNone) {
        read.versions[i] = set.versions[way].load(std::memory_order_acquire);
        read_words(pool.rows_of(number) + way * place.words, place.row_bytes,
                   read.rows + i * place.row_bytes);
      }
      if (set.sequence.load(std::memory_order_relaxed) != before) continue;
      if (way != HotSet::kNone) read.states[i] = ReadState::kFound;
      break;
    }
  }
}

// --- changes -------------------------------------------------------------------------------------

void HotRows::fill(const ReadRequest& read, Ticket ticket) {
  const Place& place = this->place(read.table);
  Pool& pool = *place.pool;
  const auto set_of = [&](size_t i) -> HotSet& {
    return pool.sets[pool.set_of(mix64(static_cast<uint64_t>(read.keys[i]) ^ place.salt))];
  };
  uint64_t results[kCounts + 1] = {};
  const RowVersion newest = newest_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < read.count; ++i) {
    if (i + kChangesAhead < read.count) {
      HotSet& next = set_of(i + kChangesAhead);
      __builtin_prefetch(&next, 1);
      __builtin_prefetch(&next.sketch, 1);
    }
    if (read.states[i] != ReadState::kFound) continue;
    const RowVersion version = read.versions == nullptr ? 0 : read.versions[i];
    if (version > newest) continue;
    ++results[fill_one(place, read.keys[i], read.rows + i * place.row_bytes, version, ticket)];
  }
  for (const Count which : {kInserted, kRefused, kUpdated}) {
    if (results[which] > 0) add(read.table, which, results[which]);
  }
}

// Returns the result as a counter; kCounts: nothing to count, the row is there already.
HotRows::Count HotRows::fill_one(const Place& place, int64_t key, const std::byte* row,
                                 RowVersion version, Ticket ticket) {
  Pool& pool = *place.pool;
  const uint64_t hash = mix64(static_cast<uint64_t>(key) ^ place.salt);
  const uint8_t tag = tag_of(hash);
  const size_t number = pool.set_of(hash);
  HotSet& set = pool.sets[number];
  Count result = kRefused;
  if (!set.try_lock()) return kRefused;
  const uint32_t present = set.find(tag, place.number, key);
  const bool old = set.updated_at > ticket;
  if (present != HotSet::kNone) {
    const RowVersion cached = set.versions[present].load(std::memory_order_relaxed);
    if (!old && version > cached) {
      write_words(row, pool.row_bytes, pool.rows_of(number) + present * pool.words);
      set.versions[present].store(version, std::memory_order_release);
      result = kUpdated;
    } else if (version == cached) {
      result = kCounts;  // another fill was faster
    }
  } else if (!old) {
    const uint32_t way = choose(set, hash);
    if (way != HotSet::kNone) {
      if (set.taken(way)) {
        const uint8_t victim = set.table(way);
        // The key's frequency stays in the sketch, in case the key occurs again.
        const int64_t left = set.keys[way].load(std::memory_order_relaxed);
        if (policy_ == CachePolicy::kLfu) {
          set.sketch.raise(mix64(static_cast<uint64_t>(left) ^ pool.salts[victim]),
                           set.uses[way].load(std::memory_order_relaxed));
        }
        add(pool.tables[victim], kEvicted, 1);
      }
      set.keys[way].store(key, std::memory_order_release);
      set.set_table(way, place.number);
      set.set_tag(way, tag);
      set.versions[way].store(version, std::memory_order_release);
      write_words(row, pool.row_bytes, pool.rows_of(number) + way * pool.words);
      const uint32_t use = policy_ == CachePolicy::kLru ? set.now.load(std::memory_order_relaxed)
                                                        : set.sketch.frequency(hash);
      set.uses[way].store(static_cast<uint8_t>(use), std::memory_order_relaxed);
      result = kInserted;
    }
  }
  set.unlock();
  return result;
}

// The way of a new row: a free one, else the way of the row that is worth least, if the new row is
// worth more; else kNone. The caller holds the set.
uint32_t HotRows::choose(HotSet& set, uint64_t hash) const {
  const bool lru = policy_ == CachePolicy::kLru;
  if (lru) {
    if (++set.since_tick >= kNewcomersToTick) {
      set.since_tick = 0;
      set.now.store(static_cast<uint8_t>(set.now.load(std::memory_order_relaxed) + 1),
                    std::memory_order_relaxed);
    }
  } else {
    if (++set.since_decay >= kNewcomersToDecay) {
      set.since_decay = 0;
      set.decay();
    }
    set.sketch.raise(hash, set.sketch.frequency(hash) + 1);
  }
  const uint32_t open = set.free_ways();
  if (open != 0) return static_cast<uint32_t>(__builtin_ctz(open));
  uint32_t victim = HotSet::kNone, least = 0;
  for (uint32_t i = 0; i < kWays; ++i) {
    // Ties are broken by a different way each time.
    const uint32_t way = (i + set.since_decay) % kWays;
    const uint8_t use = set.uses[way].load(std::memory_order_relaxed);
    const uint32_t worth =
        lru ? 0xffu - static_cast<uint8_t>(set.now.load(std::memory_order_relaxed) - use) : use;
    if (victim != HotSet::kNone && worth >= least) continue;
    victim = way;
    least = worth;
  }
  return lru || set.sketch.frequency(hash) > least ? victim : HotSet::kNone;
}

void HotRows::update(size_t table, const int64_t* keys, size_t count, const std::byte* rows,
                     const RowVersion* versions) {
  const Place& place = this->place(table);
  Pool& pool = *place.pool;
  // Taken before any set is read: a fetch with this ticket or a newer one began after the store had
  // these rows.
  const Ticket now = clock_.fetch_add(1, std::memory_order_seq_cst) + 1;
  for (size_t i = 0; i < count; ++i) {
    if (i + kChangesAhead < count) {
      const auto next = static_cast<uint64_t>(keys[i + kChangesAhead]);
      __builtin_prefetch(&pool.sets[pool.set_of(mix64(next ^ place.salt))], 1);
    }
    const std::byte* row = (versions[i] & kTombstone) != 0 ? nullptr : rows + i * place.row_bytes;
    update_one(place, table, keys[i], row, versions[i], now);
  }
}

void HotRows::update_one(const Place& place, size_t table, int64_t key, const std::byte* row,
                         RowVersion version, Ticket now) {
  Pool& pool = *place.pool;
  const uint64_t hash = mix64(static_cast<uint64_t>(key) ^ place.salt);
  const size_t number = pool.set_of(hash);
  HotSet& set = pool.sets[number];
  Count result = kCounts;
  lock(set);
  set.updated_at = std::max(set.updated_at, now);
  const uint32_t way = set.find(tag_of(hash), place.number, key);
  if (way != HotSet::kNone &&
      (version & ~kTombstone) > set.versions[way].load(std::memory_order_relaxed)) {
    if ((version & kTombstone) != 0) {
      set.set_tag(way, 0);
      result = kRemoved;
    } else {
      write_words(row, pool.row_bytes, pool.rows_of(number) + way * pool.words);
      set.versions[way].store(version, std::memory_order_release);
      result = kUpdated;
    }
  }
  set.unlock();
  if (result != kCounts) add(table, result, 1);
}

template <typename Leaves>
void HotRows::remove_if(Leaves&& leaves) {
  const Ticket now = clock_.fetch_add(1, std::memory_order_seq_cst) + 1;
  for (const auto& pool : pools_) {
    for (size_t s = 0; s < pool->sets.size(); ++s) {
      HotSet& set = pool->sets[s];
      lock(set);
      set.updated_at = std::max(set.updated_at, now);
      for (uint32_t way = 0; way < kWays; ++way) {
        if (!set.taken(way) || !leaves(set.keys[way].load(std::memory_order_relaxed))) continue;
        add(pool->tables[set.table(way)], kRemoved, 1);
        set.set_tag(way, 0);
      }
      set.unlock();
    }
  }
}

void HotRows::invalidate_shard(size_t shard, size_t shards) {
  if (shards == 0 || shards > kMostStoreShards || shard >= shards) {
    fail(Code::kInvalidArgument, "virtual shard %zu of %zu; at most %zu of them", shard, shards,
         kMostStoreShards);
  }
  remove_if([&](int64_t key) { return store_shard_of(key, shards) == shard; });
}

void HotRows::clear() {
  remove_if([](int64_t) { return true; });
}

// --- sizes and counts ----------------------------------------------------------------------------

size_t HotRows::slots() const {
  size_t slots = 0;
  for (const auto& pool : pools_) slots += pool->sets.size() * kWays;
  return slots;
}

size_t HotRows::bytes() const {
  size_t bytes = 0;
  for (const auto& pool : pools_) bytes += pool->sets.size() * kWays * pool->slot_bytes();
  return bytes;
}

HotCounts HotRows::counts(size_t table) const {
  place(table);
  uint64_t sums[kCounts] = {};
  for (size_t thread = 0; thread < kThreads; ++thread) {
    const Counters& own = counters_[thread * tables_.size() + table];
    for (int c = 0; c < kCounts; ++c) sums[c] += own.values[c].load(std::memory_order_relaxed);
  }
  HotCounts counts;
  counts.hits = sums[kHits];
  counts.misses = sums[kMisses];
  counts.inserted = sums[kInserted];
  counts.evicted = sums[kEvicted];
  counts.refused = sums[kRefused];
  counts.updated = sums[kUpdated];
  counts.removed = sums[kRemoved];
  return counts;
}

}  // namespace hotrow
