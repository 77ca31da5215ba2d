#include "core/serving/single_flight.h"

#include <cstring>
#include <utility>

#include "core/base/status.h"

namespace hotrow {
namespace {

constexpr size_t kShards = 64;
constexpr unsigned kShardShift = 58;  // the hash's top bits
constexpr int kRounds = 2;

}  // namespace

SingleFlight::Shard& SingleFlight::shard_of(uint64_t hash) { return shards_[hash >> kShardShift]; }

// One fetch: its keys, grouped by request, and their results. Its lookup writes it until it has
// landed; then it is only read.
class SingleFlight::Flight : public std::enable_shared_from_this<SingleFlight::Flight> {
 public:
  // The keys of a request of the lookup.
  struct Part {
    size_t table = 0;
    size_t row_bytes = 0;
    size_t first = 0, count = 0;  // in keys
    size_t first_byte = 0;        // in rows
  };

  Flight(uint64_t ticket, size_t requests, size_t most_keys) : ticket(ticket), parts(requests) {
    // Allocates all memory before the first seat: a seat whose key is not in the list would never
    // be freed.
    keys.reserve(most_keys);
    places.reserve(most_keys);
  }

  // Reads the keys.
  void run(const RowReader& reader, Deadline deadline) {
    failure = {Code::kInternal, "the lookup that fetched the row was broken off"};
    size_t bytes = 0;
    for (Part& part : parts) {
      part.first_byte = bytes;
      bytes += part.count * part.row_bytes;
    }
    rows.resize(bytes);
    versions.assign(keys.size(), 0);
    states.assign(keys.size(), ReadState::kFailed);
    for (const Part& part : parts) {
      if (part.count == 0) continue;
      ReadRequest read;
      read.table = part.table;
      read.keys = keys.data() + part.first;
      read.count = part.count;
      read.rows = rows.data() + part.first_byte;
      read.versions = versions.data() + part.first;
      read.states = states.data() + part.first;
      reads.push_back(read);
    }
    failure = reader.read(reads.data(), reads.size(), deadline);
  }
  // The row of key `index`, which belongs to part `part`.
  const std::byte* row(uint32_t part, uint32_t index) const {
    const Part& p = parts[part];
    return rows.data() + p.first_byte + (index - p.first) * p.row_bytes;
  }
  void land() {
    {
      std::lock_guard lock(mutex_);
      landed_ = true;
    }
    changed_.notify_all();
  }
  bool wait(Deadline deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline, [&] { return landed_; });
  }

  const uint64_t ticket;
  std::vector<Part> parts;  // by request of the lookup
  std::vector<int64_t> keys;
  std::vector<Place> places;  // in the lookup
  std::vector<std::byte> rows;
  std::vector<RowVersion> versions;
  std::vector<ReadState> states;
  std::vector<ReadRequest> reads;
  ReadFailure failure;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool landed_ = false;
};

// A key that another lookup fetches.
struct SingleFlight::Wait {
  Place place;
  std::shared_ptr<Flight> flight;
  uint32_t request;
  uint32_t index;
};

// Frees the flight's seats and wakes all waiting lookups, however the fetch ends.
class SingleFlight::Departure {
 public:
  Departure(SingleFlight& all, Flight& flight) : all_(all), flight_(flight) {}
  ~Departure() {
    for (const Flight::Part& part : flight_.parts) {
      for (size_t i = part.first; i < part.first + part.count; ++i) {
        const int64_t key = flight_.keys[i];
        const uint64_t hash = FlightSeats<Flight>::hash_of(part.table, key);
        Shard& shard = all_.shard_of(hash);
        std::lock_guard lock(shard.mutex);
        // Another flight with a newer ticket may have taken the seat.
        shard.seats.free(hash, part.table, key, &flight_);
      }
    }
    flight_.land();
  }
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;

 private:
  SingleFlight& all_;
  Flight& flight_;
};

SingleFlight::SingleFlight(const RowReader& reader)
    : reader_(reader), shards_(new Shard[kShards]) {}

SingleFlight::~SingleFlight() = default;

ReadFailure SingleFlight::read(const ReadRequest* requests, size_t count, uint64_t ticket,
                               Deadline deadline, const Landed& landed) {
  ReadFailure failure;
  const auto note = [&](const ReadFailure& other) {
    if (failure.code == Code::kOk) failure = other;
  };
  size_t keys = 0;
  for (size_t r = 0; r < count; ++r) keys += requests[r].count;
  std::vector<Place> wanted, again;
  wanted.reserve(keys);
  for (uint32_t r = 0; r < count; ++r) {
    for (uint32_t i = 0; i < requests[r].count; ++i) wanted.push_back(Place{r, i});
  }
  const auto put = [&](Place to, const Flight& from, uint32_t part, uint32_t index) {
    const ReadRequest& request = requests[to.request];
    request.states[to.position] = from.states[index];
    if (request.versions != nullptr) request.versions[to.position] = from.versions[index];
    if (from.states[index] != ReadState::kFound) return;
    const size_t row_bytes = from.parts[part].row_bytes;
    std::memcpy(request.rows + to.position * row_bytes, from.row(part, index), row_bytes);
  };
  for (int round = 0; round < kRounds && !wanted.empty(); ++round) {
    const auto flight = std::make_shared<Flight>(ticket, count, wanted.size());
    for (size_t r = 0; r < count; ++r) {
      flight->parts[r].table = requests[r].table;
      flight->parts[r].row_bytes = reader_.tables()[requests[r].table].row_bytes();
    }
    std::vector<Wait> waits;
    {
      const Departure departure(*this, *flight);
      for (const Place place : wanted) {
        const ReadRequest& request = requests[place.request];
        const int64_t key = request.keys[place.position];
        const uint64_t hash = FlightSeats<Flight>::hash_of(request.table, key);
        Shard& shard = shard_of(hash);
        std::lock_guard lock(shard.mutex);
        auto& seat = shard.seats.find(hash, request.table, key);
        if (seat.flight != nullptr && seat.flight->ticket >= ticket) {
          waits.push_back(Wait{place, seat.flight->shared_from_this(), seat.request, seat.index});
          continue;
        }
        Flight::Part& part = flight->parts[place.request];
        const auto index = static_cast<uint32_t>(flight->keys.size());
        if (part.count++ == 0) part.first = index;
        flight->keys.push_back(key);
        flight->places.push_back(place);
        shard.seats.take(
            seat, {key, flight.get(), static_cast<uint32_t>(request.table), place.request, index});
      }
      if (!flight->keys.empty()) {
        flight->run(reader_, deadline);
        note(flight->failure);
        if (landed) landed(flight->reads.data(), flight->reads.size());
      }
    }
    for (uint32_t i = 0; i < flight->keys.size(); ++i) {
      put(flight->places[i], *flight, flight->places[i].request, i);
    }
    // Only now: the lookups that this call waits for may themselves wait for this call's fetch.
    waited_.fetch_add(waits.size(), std::memory_order_relaxed);
    again.clear();
    ReadFailure of_others;
    for (const Wait& wait : waits) {
      ReadState& state = requests[wait.place.request].states[wait.place.position];
      if (!wait.flight->wait(deadline)) {
        state = ReadState::kFailed;
        note({Code::kUnavailable, "the deadline passed while another lookup fetched the row"});
        continue;
      }
      const std::vector<ReadState>& states = wait.flight->states;
      if (states.empty() || states[wait.index] == ReadState::kFailed) {
        state = ReadState::kFailed;
        of_others = wait.flight->failure;
        again.push_back(wait.place);
      } else {
        put(wait.place, *wait.flight, wait.request, wait.index);
      }
    }
    if (!again.empty() && (round + 1 == kRounds || std::chrono::steady_clock::now() >= deadline)) {
      note(of_others);
      break;
    }
    wanted.swap(again);
  }
  return failure;
}

}  // namespace hotrow
