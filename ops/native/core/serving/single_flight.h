// One fetch of a row at a time: lookups that miss a key while another lookup fetches it wait for
// that fetch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/serving/flight_seats.h"
#include "core/store/row_reader.h"

namespace hotrow {

// Safe from several threads. What a fetch found is gone once all who waited for it have it; so are
// its failures.
class SingleFlight {
 public:
  // reader outlives it.
  explicit SingleFlight(const RowReader& reader);
  ~SingleFlight();
  SingleFlight(const SingleFlight&) = delete;
  SingleFlight& operator=(const SingleFlight&) = delete;

  // Called with what this call has read itself, before others stop to find its fetch.
  using Landed = std::function<void(const ReadRequest* requests, size_t count)>;

  // As RowReader::read; returns at `deadline` at the latest, if the reader does. No fetch older
  // than `ticket` is waited for: one that began before an update which the caller has to see
  // (HotRows::ticket). A key whose fetch by somebody else failed, perhaps at an earlier deadline,
  // is asked for once more. Fails as the reader does; then those who waited get kFailed.
  ReadFailure read(const ReadRequest* requests, size_t count, uint64_t ticket, Deadline deadline,
                   const Landed& landed);

  // Keys that waited for another lookup's fetch.
  uint64_t waited() const { return waited_.load(std::memory_order_relaxed); }

 private:
  class Flight;
  class Departure;
  struct Wait;
  // A key of a request.
  struct Place {
    uint32_t request;
    uint32_t position;
  };
  struct alignas(64) Shard {
    std::mutex mutex;
    FlightSeats<Flight> seats;
  };

  Shard& shard_of(uint64_t hash);

  const RowReader& reader_;
  std::unique_ptr<Shard[]> shards_;
  std::atomic<uint64_t> waited_{0};
};

}  // namespace hotrow
