#include "core/single_flight.h"

#include <cstring>
#include <utility>

#include "core/hash.h"
#include "core/status.h"

namespace hotrow {
namespace {

constexpr size_t kShards = 64;
constexpr int kRounds = 2;

}  // namespace

size_t SingleFlight::HashOfName::operator()(const Name& name) const {
  return combine64(name.table, static_cast<uint64_t>(name.key));
}

SingleFlight::Shard& SingleFlight::shard_of(const Name& name) {
  return shards_[HashOfName()(name) >> 58];
}

// One fetch: its keys by request, and what came of them. Written by its lookup until it has landed,
// then only read.
class SingleFlight::Flight : public std::enable_shared_from_this<SingleFlight::Flight> {
 public:
  // The requests of the fetch, one a table. Keys are added before anything is read.
  struct Request {
    size_t table = 0;
    size_t row_bytes = 0;
    std::vector<int64_t> keys;
    std::vector<Place> places;  // of the lookup
    std::vector<std::byte> rows;
    std::vector<RowVersion> versions;
    std::vector<ReadState> states;
  };

  explicit Flight(uint64_t ticket) : ticket(ticket) {}

  // Fills the requests.
  void run(const RowReader& reader, Deadline deadline) {
    reads.reserve(requests.size());
    for (Request& request : requests) {
      const size_t count = request.keys.size();
      request.rows.resize(count * request.row_bytes);
      request.versions.assign(count, 0);
      request.states.assign(count, ReadState::kFailed);
      if (count == 0) continue;
      ReadRequest read;
      read.table = request.table;
      read.keys = request.keys.data();
      read.count = count;
      read.rows = request.rows.data();
      read.versions = request.versions.data();
      read.states = request.states.data();
      reads.push_back(read);
    }
    failure = {Code::kInternal, "the lookup that fetched the row was broken off"};
    if (!reads.empty()) failure = reader.read(reads.data(), reads.size(), deadline);
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
  std::vector<Request> requests;  // by request of the lookup
  std::vector<ReadRequest> reads;
  ReadFailure failure;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool landed_ = false;
};

// A key that somebody else fetches.
struct SingleFlight::Wait {
  Place place;
  std::shared_ptr<Flight> flight;
  uint32_t request;
  uint32_t position;
};

// Takes the flight's seats back and lets all go who wait, however the fetch ends.
class SingleFlight::Departure {
 public:
  Departure(SingleFlight& all, Flight& flight) : all_(all), flight_(flight) {}
  ~Departure() {
    for (const Flight::Request& request : flight_.requests) {
      for (const int64_t key : request.keys) {
        const Name name{request.table, key};
        Shard& shard = all_.shard_of(name);
        std::lock_guard lock(shard.mutex);
        const auto seat = shard.seats.find(name);
        // Another flight may have taken the seat: one of a newer ticket.
        if (seat != shard.seats.end() && seat->second.flight == &flight_) shard.seats.erase(seat);
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
  std::vector<Place> wanted, again;
  for (uint32_t r = 0; r < count; ++r) {
    for (uint32_t i = 0; i < requests[r].count; ++i) wanted.push_back(Place{r, i});
  }
  const auto put = [&](Place to, const Flight::Request& from, uint32_t position) {
    const ReadRequest& request = requests[to.request];
    request.states[to.position] = from.states[position];
    if (request.versions != nullptr) request.versions[to.position] = from.versions[position];
    if (from.states[position] != ReadState::kFound) return;
    std::memcpy(request.rows + to.position * from.row_bytes,
                from.rows.data() + position * from.row_bytes, from.row_bytes);
  };
  for (int round = 0; round < kRounds && !wanted.empty(); ++round) {
    const auto flight = std::make_shared<Flight>(ticket);
    flight->requests.resize(count);
    std::vector<Wait> waits;
    {
      const Departure departure(*this, *flight);
      for (size_t r = 0; r < count; ++r) {
        flight->requests[r].table = requests[r].table;
        flight->requests[r].row_bytes = reader_.tables()[requests[r].table].row_bytes();
        // All memory before the first seat: a seat whose key is not in the list would stay.
        flight->requests[r].keys.reserve(requests[r].count);
        flight->requests[r].places.reserve(requests[r].count);
      }
      for (const Place place : wanted) {
        const ReadRequest& request = requests[place.request];
        const Name name{request.table, request.keys[place.position]};
        Flight::Request& own = flight->requests[place.request];
        Shard& shard = shard_of(name);
        std::lock_guard lock(shard.mutex);
        auto [found, is_new] = shard.seats.try_emplace(name);
        Seat& seat = found->second;
        if (!is_new && seat.flight->ticket >= ticket) {
          waits.push_back(
              Wait{place, seat.flight->shared_from_this(), seat.request, seat.position});
          continue;
        }
        seat = Seat{flight.get(), place.request, static_cast<uint32_t>(own.keys.size())};
        own.keys.push_back(name.key);
        own.places.push_back(place);
      }
      if (waits.size() < wanted.size()) {
        flight->run(reader_, deadline);
        note(flight->failure);
        if (landed) landed(flight->reads.data(), flight->reads.size());
      }
    }
    for (const Flight::Request& own : flight->requests) {
      for (uint32_t i = 0; i < own.keys.size(); ++i) put(own.places[i], own, i);
    }
    // Only now: what others fetch may wait for what this call has fetched.
    waited_.fetch_add(waits.size(), std::memory_order_relaxed);
    again.clear();
    ReadFailure of_others;
    for (const Wait& wait : waits) {
      if (!wait.flight->wait(deadline)) {
        requests[wait.place.request].states[wait.place.position] = ReadState::kFailed;
        note({Code::kUnavailable, "the deadline passed while another lookup fetched the row"});
        continue;
      }
      const Flight::Request& from = wait.flight->requests[wait.request];
      if (from.states.empty() || from.states[wait.position] == ReadState::kFailed) {
        requests[wait.place.request].states[wait.place.position] = ReadState::kFailed;
        of_others = wait.flight->failure;
        again.push_back(wait.place);
      } else {
        put(wait.place, from, wait.position);
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
