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

// Safe from several threads. The results and failures of a fetch are dropped once all waiting
// lookups have them.
class SingleFlight {
 public:
  // reader outlives it.
  explicit SingleFlight(const RowReader& reader);
  ~SingleFlight();
  SingleFlight(const SingleFlight&) = delete;
  SingleFlight& operator=(const SingleFlight&) = delete;

  // Called with the rows that this call has read itself, while other lookups still find its fetch.
  using Landed = std::function<void(const ReadRequest* requests, size_t count)>;

  // As RowReader::read; returns at `deadline` at the latest, if the reader does. It does not wait
  // for a fetch older than `ticket`: such a fetch began before an update that the caller must read
  // (HotRows::ticket). A key whose fetch by another lookup failed, perhaps at an earlier deadline,
  // is read once more. Fails as the reader does; then waiting lookups get kFailed.
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
