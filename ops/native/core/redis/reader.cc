#include "core/redis/reader.h"

#include <utility>

#include "core/base/json.h"

namespace hotrow {
namespace {

using Clock = std::chrono::steady_clock;

// Of RedisOptions::most_reads: reads that may wait for others.
constexpr size_t kMostRounds = 8;

const char* name_of(CircuitBreaker::State state) {
  switch (state) {
    case CircuitBreaker::State::kClosed:
      return "closed";
    case CircuitBreaker::State::kOpen:
      return "open";
    case CircuitBreaker::State::kHalfOpen:
      return "half open";
  }
  return "";
}

}  // namespace

RedisReader::RedisReader(StoredGeneration generation, const std::string& topology,
                         RedisOptions options)
    : generation_(std::move(generation)),
      options_(std::move(options)),
      names_(generation_.shards, generation_.number),
      routes_(names_, options_),
      shared_{&names_, &routes_, &options_, &statistics_, &fence_, generation_.name} {
  for (const StoredTable& table : generation_.tables) {
    if (table.pages == 0) {
      fail(Code::kFailedPrecondition, "generation %s, table %s: no pages; it is not of Redis",
           generation_.name.c_str(), table.name.c_str());
    }
  }
  set_topology(topology);
}

void RedisReader::set_fence(RowVersion oldest) const { fence_.version.store(oldest); }

void RedisReader::set_topology(const std::string& topology) const {
  routes_.set_topology(parse_redis_topology(topology));
}

// Begins a read, perhaps after other reads; fails at once when it could not end in time.
ReadFailure RedisReader::take_turn(Deadline deadline) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto may_begin = [&] { return reads_ < options_.most_reads; };
  if (!may_begin()) {
    const auto typical = typical_read();
    // Rounds of reads before this one, the present one half over, and this one.
    const auto rounds = static_cast<int64_t>(waiting_ / options_.most_reads);
    const bool too_late = Clock::now() + rounds * typical + typical * 3 / 2 > deadline;
    if (too_late || waiting_ >= kMostRounds * options_.most_reads) {
      add(&statistics_.refused);
      const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(typical);
      return {Code::kResourceExhausted, std::to_string(reads_) + " reads of the store go on and " +
                                            std::to_string(waiting_) + " wait, about " +
                                            std::to_string(millis.count()) +
                                            " ms each: this one would not end in time"};
    }
  }
  ++waiting_;
  const bool began = ended_.wait_until(lock, deadline, may_begin);
  --waiting_;
  if (!began) {
    add(&statistics_.refused);
    return {Code::kResourceExhausted, std::to_string(options_.most_reads) +
                                          " reads of the store go on, and none ended in time"};
  }
  if (Clock::now() >= deadline) {
    // Another one may begin in its place.
    ended_.notify_one();
    return {Code::kUnavailable, "the deadline of the read was over when it began"};
  }
  ++reads_;
  return {};
}

void RedisReader::end_turn(std::chrono::nanoseconds taken) const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    --reads_;
    const int64_t typical = typical_nanos_.load(std::memory_order_relaxed);
    typical_nanos_.store(typical == 0 ? taken.count() : typical + (taken.count() - typical) / 8,
                         std::memory_order_relaxed);
  }
  ended_.notify_one();
}

ReadFailure RedisReader::read(const ReadRequest* requests, size_t count, Deadline deadline) const {
  const auto start = Clock::now();
  PageRequests pages(generation_.tables, generation_.shards, requests, count);
  if (pages.keys() == 0) return {};
  ReadFailure failure = take_turn(deadline);
  if (failure.code == Code::kOk) {
    const auto begun = Clock::now();
    try {
      failure = RedisRead(shared_, &pages, deadline).run();
    } catch (...) {
      end_turn(Clock::now() - begun);
      throw;
    }
    end_turn(Clock::now() - begun);
  }
  size_t found = 0, unknown = 0;
  for (size_t r = 0; r < count; ++r) {
    for (size_t i = 0; i < requests[r].count; ++i) {
      found += requests[r].states[i] == ReadState::kFound;
      unknown += requests[r].states[i] == ReadState::kUnknown;
    }
  }
  add(&statistics_.reads);
  add(&statistics_.keys_found, found);
  add(&statistics_.keys_unknown, unknown);
  add(&statistics_.keys_failed, pages.keys() - found - unknown);
  statistics_.add_time(static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count()));
  return failure;
}

void RedisReader::visit_counts(const Visit& visit) const {
  const std::pair<const char*, const RedisStatistics::Counter*> counters[] = {
      {"reads", &statistics_.reads},
      {"keys_found", &statistics_.keys_found},
      {"keys_unknown", &statistics_.keys_unknown},
      {"keys_failed", &statistics_.keys_failed},
      {"pages", &statistics_.pages},
      {"markers", &statistics_.markers},
      {"trips", &statistics_.trips},
      {"reconnects", &statistics_.reconnects},
      {"moved", &statistics_.moved},
      {"asked", &statistics_.asked},
      {"retried", &statistics_.retried},
      {"refused", &statistics_.refused},
      {"microseconds", &statistics_.microseconds},
  };
  for (const auto& [name, counter] : counters) visit(name, counter->load());
}

std::string RedisReader::statistics() const {
  JsonObject json;
  visit_counts([&](const char* name, uint64_t count) { json.set(name, count); });
  json.set("read_times",
           std::vector<uint64_t>(statistics_.read_times.begin(), statistics_.read_times.end()));
  JsonObject nodes;
  for (const auto& node : routes_.nodes()) {
    JsonObject counts;
    counts.set("breaker", std::string(name_of(node->breaker()->state())))
        .set("openings", node->breaker()->openings())
        .set("last_failure", std::string(node->breaker()->last_failure().what()))
        .set("connects", node->connects.load())
        .set("failures", node->failures.load())
        .set("commands", node->commands.load())
        .set("bytes_in", node->bytes_in.load())
        .set("idle_connections", node->idle());
    nodes.set(node->address().text, counts);
  }
  return json.set("nodes", nodes).written();
}

}  // namespace hotrow
