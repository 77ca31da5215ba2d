// How a batch finds its rows in a table with a device tier.
#include <chrono>
#include <cstring>

#include "core/batch_rows.h"
#include "core/host_search.h"
#include "core/look_ahead.h"

namespace hotrow {
namespace {

// Takes the pins of a lookup back, also when it fails.
class Pins {
 public:
  Pins(RowCache& cache, std::vector<uint32_t>* slots) : cache_(&cache), slots_(slots) {}
  ~Pins() {
    for (uint32_t slot : *slots_) cache_->unpin(slot);
    slots_->clear();
  }

 private:
  RowCache* cache_;
  std::vector<uint32_t>* slots_;
};

// Adds the time of its life.
class Stopwatch {
 public:
  explicit Stopwatch(uint64_t* nanoseconds)
      : nanoseconds_(nanoseconds), started_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    const auto passed = std::chrono::steady_clock::now() - started_;
    *nanoseconds_ +=
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
  }

 private:
  uint64_t* nanoseconds_;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace

void BatchRows::find_in_tiers(Group& group, Missing missing) {
  RowCache& cache = *table_->cache();
  const bool training = missing != Missing::kReadDefault;
  const size_t distinct = group.unique.size();
  const int64_t* keys = group.unique.keys();
  const uint64_t* hashes = group.unique.hashes();
  uint32_t* const elsewhere = group.elsewhere.data();
  size_t missed = 0;
  const Pins pins(cache, &group.pinned);
  const auto take = [&](size_t u, uint32_t slot) {
    group.places[u] = cache.place(slot);
    group.lines[u] = cache.line(slot);
    if (!training) return;
    group.pinned.push_back(slot);
    cache.pin(slot);
    cache.set_dirty(slot, true);
  };
  // First what the device tier has, pinned: so no row of the batch is another's victim.
  in_blocks(
      distinct, [&](size_t u) __attribute__((always_inline)) { fetch(cache.home(hashes[u])); },
      [&](size_t u) __attribute__((always_inline)) {
        const uint32_t slot = cache.likely(hashes[u]);
        if (slot != RowCache::kNone) fetch(cache.line(slot));
      },
      [&](size_t u) {
        uint32_t slot = cache.find(hashes[u], keys[u]);
        if (slot != RowCache::kNone && cache.loading(slot)) {
          // Until its line is there, the host tier's is as new; a reader takes that one.
          const Stopwatch waited(&group.cached.stall_ns);
          if (!training || !table_->mover()->wait_for(slot)) slot = RowCache::kNone;
        }
        if (missing == Missing::kInsert) cache.note_use(hashes[u], slot);
        if (slot == RowCache::kNone) {
          elsewhere[missed++] = static_cast<uint32_t>(u);
        } else {
          take(u, slot);
        }
      });
  if (missing == Missing::kInsert) {
    group.cached.hits = distinct - missed;
    group.cached.misses = missed;
  }
  if (missed == 0) return;
  const Stopwatch stalled(&group.cached.stall_ns);
  // Then the host tier, in the order of the keys, as without a device tier.
  find_elsewhere(group, missed, missing);
  const size_t row_bytes = sizeof(RowHeader) + table_->line_bytes();
  for (size_t i = 0; training && i < missed; ++i) {
    const size_t u = elsewhere[i];
    if (group.lines[u] == nullptr) continue;
    const uint32_t slot = cache.choose(hashes[u], RowCache::Admit::kIfWorthMore);
    // Not worth a slot: the batch works on the host tier's line.
    if (slot == RowCache::kNone) continue;
    if (cache.used(slot)) table_->give_up(slot, &group.cached);
    cache.put(slot, hashes[u], keys[u], group.places[u]);
    std::memcpy(cache.line(slot), group.lines[u], row_bytes);
    ++group.cached.inserted;
    take(u, slot);
  }
}

}  // namespace hotrow
