#include "core/redis/reader.h"

#include <utility>

#include "core/base/json.h"

namespace hotrow {
namespace {

using Clock = std::chrono::steady_clock;

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
      shared_{&names_, &routes_, &options_, &statistics_, generation_.name} {
  for (const StoredTable& table : generation_.tables) {
    if (table.pages == 0) {
      fail(Code::kFailedPrecondition, "generation %s, table %s: no pages; it is not of Redis",
           generation_.name.c_str(), table.name.c_str());
    }
  }
  set_topology(topology);
}

void RedisReader::set_topology(const std::string& topology) const {
  routes_.set_topology(parse_redis_topology(topology));
}

ReadFailure RedisReader::read(const ReadRequest* requests, size_t count, Deadline deadline) const {
  const auto start = Clock::now();
  PageRequests pages(generation_.tables, generation_.shards, requests, count);
  if (pages.keys() == 0) return {};
  ReadFailure failure;
  std::unique_lock<std::mutex> lock(mutex_);
  const auto may_begin = [&] { return reads_ < options_.most_reads; };
  if (!ended_.wait_until(lock, deadline, may_begin)) {
    failure = {Code::kResourceExhausted, std::to_string(options_.most_reads) +
                                             " reads of the store go on, and none ended in time"};
  } else if (Clock::now() >= deadline) {
    failure = {Code::kUnavailable, "the deadline of the read was over when it began"};
  } else {
    ++reads_;
    lock.unlock();
    const auto end = [&] {
      lock.lock();
      --reads_;
      lock.unlock();
      ended_.notify_one();
    };
    try {
      failure = RedisRead(shared_, &pages, deadline).run();
    } catch (...) {
      end();
      throw;
    }
    end();
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
