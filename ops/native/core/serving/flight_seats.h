// The fetches in flight: a small hash table from key to fetch that changes all the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/hash.h"

namespace hotrow {

// Open addressing without tombstones. Not synchronized.
template <typename Flight>
class FlightSeats {
 public:
  struct Seat {
    int64_t key = 0;
    Flight* flight = nullptr;  // null: free
    uint32_t table = 0;
    uint32_t request = 0;  // of the flight
    uint32_t index = 0;    // of the key in the flight
  };

  static uint64_t hash_of(size_t table, int64_t key) {
    return combine64(table, static_cast<uint64_t>(key));
  }

  // The seat of a key, or a free one that the caller takes at once. hash: hash_of(table, key).
  Seat& find(uint64_t hash, size_t table, int64_t key) {
    if (2 * (taken_ + 1) > seats_.size()) grow();
    return seats_[place_of(hash, table, key)];
  }
  // Gives a free seat to a key.
  void take(Seat& seat, const Seat& by) {
    taken_ += seat.flight == nullptr;
    seat = by;
  }
  // Frees the seat of a key, if it belongs to this flight.
  void free(uint64_t hash, size_t table, int64_t key, const Flight* flight) {
    if (seats_.empty()) return;
    const size_t mask = seats_.size() - 1;
    size_t hole = place_of(hash, table, key);
    if (flight == nullptr || seats_[hole].flight != flight) return;
    // Later entries move up if their probe sequence passes the hole.
    for (size_t next = (hole + 1) & mask; seats_[next].flight != nullptr;
         next = (next + 1) & mask) {
      const size_t home = hash_of(seats_[next].table, seats_[next].key) & mask;
      if (((next - home) & mask) < ((next - hole) & mask)) continue;
      seats_[hole] = seats_[next];
      hole = next;
    }
    seats_[hole].flight = nullptr;
    --taken_;
  }
  size_t taken() const { return taken_; }

 private:
  static constexpr size_t kSmallest = 16;

  size_t place_of(uint64_t hash, size_t table, int64_t key) const {
    const size_t mask = seats_.size() - 1;
    size_t place = hash & mask;
    for (; seats_[place].flight != nullptr; place = (place + 1) & mask) {
      if (seats_[place].key == key && seats_[place].table == table) break;
    }
    return place;
  }
  void grow() {
    std::vector<Seat> old(seats_.empty() ? kSmallest : 2 * seats_.size());
    old.swap(seats_);
    for (const Seat& seat : old) {
      if (seat.flight == nullptr) continue;
      seats_[place_of(hash_of(seat.table, seat.key), seat.table, seat.key)] = seat;
    }
  }

  std::vector<Seat> seats_;
  size_t taken_ = 0;
};

}  // namespace hotrow
