// The machine of simt.cc calls this; as that file, it is not instrumented under TSan.
#include "tests/simt/weak_memory.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <unordered_map>
#include <vector>

#include "tests/simt/simt.h"

namespace simt {
namespace {

// By location: the number of the oldest of its stores that a thread may still read. Locations
// beyond its end: 0, the value before all stores.
using View = std::vector<uint32_t>;

void join(View* view, const View& other) {
  if (view->size() < other.size()) view->resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) (*view)[i] = std::max((*view)[i], other[i]);
}
void set(View* view, size_t location, size_t store) {
  if (view->size() <= location) view->resize(location + 1);
  (*view)[location] = static_cast<uint32_t>(store);
}
uint32_t get(const View& view, size_t location) {
  return location < view.size() ? view[location] : 0;
}

struct Store {
  uint32_t value;
  uint64_t time;                      // among all stores
  std::shared_ptr<const View> known;  // to whoever acquires it; null: nothing
};

struct Memory {
  explicit Memory(uint64_t seed) : random(seed) {}

  // The number of a location.
  size_t find(const void* at, size_t bytes) {
    uint32_t newest = 0;
    std::memcpy(&newest, at, bytes);
    const auto [found, is_new] = numbers.emplace(at, stores.size());
    if (is_new) stores.push_back({{newest, 0, nullptr}});
    if (stores[found->second].back().value != newest) {
      std::fprintf(stderr, "simt: a plain store to what kernels share without a lock\n");
      std::abort();
    }
    return found->second;
  }
  // One of the stores, not before `oldest`. Loads of one launch mostly choose by the same moment:
  // threads that confirm each other's loads would else agree on nothing but the newest values.
  size_t choose(const std::vector<Store>& from, size_t oldest) {
    if (random() % 64 == 0) return oldest + random() % (from.size() - oldest);
    size_t chosen = from.size() - 1;
    while (chosen > oldest && from[chosen].time > moment) --chosen;
    return chosen;
  }

  std::unordered_map<const void*, size_t> numbers;
  std::vector<std::vector<Store>> stores;  // by location
  View order;                              // known to the next launch
  View start;                              // known when the running launch began
  uint64_t time = 0;                       // of the last store
  std::vector<uint64_t> releases{0};       // their times
  uint64_t moment = 0;                     // of the running launch
  std::map<const void*, View> meetings;
  std::mt19937_64 random;
};

// What a thread knows.
struct Thread {
  View now;                              // for its loads
  View loaded;                           // after its next fence
  std::shared_ptr<const View> released;  // before its last fence
};

std::mutex mutex;
std::atomic<Memory*> memory{nullptr};
thread_local Thread threads[1024];  // of the block on this host thread

Thread& self() { return threads[threadIdx.x]; }

}  // namespace

WeakMemory::WeakMemory(uint64_t seed) { memory = new Memory(seed); }
WeakMemory::~WeakMemory() { delete memory.exchange(nullptr); }
void WeakMemory::beside() { memory.load()->order.clear(); }

namespace weak {

bool on() { return memory.load(std::memory_order_relaxed) != nullptr; }

uint32_t load(const void* at, size_t bytes, Order order) {
  std::lock_guard lock(mutex);
  Memory& m = *memory;
  const size_t location = m.find(at, bytes);
  const std::vector<Store>& stores = m.stores[location];
  const size_t chosen = m.choose(stores, get(self().now, location));
  set(&self().now, location, chosen);
  if (stores[chosen].known != nullptr) {
    join(order == Order::kAcquire ? &self().now : &self().loaded, *stores[chosen].known);
  }
  return stores[chosen].value;
}

void store(void* at, size_t bytes, uint32_t value, Order order) {
  std::lock_guard lock(mutex);
  Memory& m = *memory;
  const size_t location = m.find(at, bytes);
  set(&self().now, location, m.stores[location].size());
  const bool releases = order == Order::kRelease;
  m.stores[location].push_back(
      {value, ++m.time, releases ? std::make_shared<const View>(self().now) : self().released});
  if (releases) m.releases.push_back(m.time);
  std::memcpy(at, &value, bytes);
}

void fence() {
  if (!on()) return;
  join(&self().now, self().loaded);
  self().released = std::make_shared<const View>(self().now);
}

void begin_launch() {
  if (!on()) return;
  std::lock_guard lock(mutex);
  Memory& m = *memory;
  m.start = m.order;
  m.moment =
      m.random() % 4 == 0 ? m.random() % (m.time + 1) : m.releases[m.random() % m.releases.size()];
}

void begin_thread() {
  if (!on()) return;
  std::lock_guard lock(mutex);
  self() = {memory.load()->start, {}, nullptr};
}

void end_thread() {
  if (!on()) return;
  std::lock_guard lock(mutex);
  join(&memory.load()->order, self().now);
}

void arrive(const void* place, bool first) {
  if (!on()) return;
  std::lock_guard lock(mutex);
  View& met = memory.load()->meetings[place];
  if (first) met.clear();
  join(&met, self().now);
}

void leave(const void* place) {
  if (!on()) return;
  std::lock_guard lock(mutex);
  join(&self().now, memory.load()->meetings[place]);
}

}  // namespace weak
}  // namespace simt
