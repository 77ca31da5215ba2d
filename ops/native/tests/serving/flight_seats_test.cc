#include "core/serving/flight_seats.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

namespace hotrow {

TEST_CASE("flight seats: as a map, through many keys that come and go") {
  int flights[3];
  FlightSeats<int> seats;
  using Seat = FlightSeats<int>::Seat;
  std::map<std::pair<size_t, int64_t>, Seat> expected;
  std::mt19937_64 random(1);
  for (int i = 0; i < 40000; ++i) {
    const size_t table = random() % 3;
    const auto key = static_cast<int64_t>(random() % 60);
    const uint64_t hash = FlightSeats<int>::hash_of(table, key);
    int* const flight = &flights[random() % 3];
    const auto found = expected.find({table, key});
    if (random() % 2 == 0) {
      Seat& seat = seats.find(hash, table, key);
      REQUIRE((seat.flight == nullptr) == (found == expected.end()));
      const Seat by = {key, flight, static_cast<uint32_t>(table), static_cast<uint32_t>(i), 7};
      seats.take(seat, by);
      expected[{table, key}] = by;
    } else {
      seats.free(hash, table, key, flight);
      if (found != expected.end() && found->second.flight == flight) expected.erase(found);
    }
    REQUIRE(seats.taken() == expected.size());
    if (i % 100 != 0) continue;
    for (const auto& [name, by] : expected) {
      const uint64_t of_name = FlightSeats<int>::hash_of(name.first, name.second);
      const Seat& seat = seats.find(of_name, name.first, name.second);
      REQUIRE(seat.flight == by.flight);
      REQUIRE(seat.request == by.request);
    }
  }
}

}  // namespace hotrow
