// The part of the C ABI that reads stored rows from Redis.
#include "core/abi/redis.h"

#include <cmath>
#include <memory>

#include "core/abi/guard.h"
#include "core/redis/reader.h"
#include "core/store/stored_reader.h"

namespace {

using hotrow::Code;
using hotrow::capi::guarded;

const hotrow::RedisReader& to_redis(const hr_reader* reader) {
  const auto* redis = dynamic_cast<const hotrow::RedisReader*>(reader->reader.get());
  if (redis == nullptr) hotrow::fail(Code::kInvalidArgument, "this reader is none of Redis");
  return *redis;
}

std::chrono::milliseconds to_milliseconds(double seconds, const char* what) {
  if (!(seconds >= 0.001 && seconds <= 3600)) {
    hotrow::fail(Code::kInvalidArgument, "%s: %g; from 0.001 to 3600 seconds", what, seconds);
  }
  return std::chrono::milliseconds(std::lround(seconds * 1000));
}

hotrow::RedisOptions to_options(const hr_redis_access& access) {
  hotrow::RedisOptions options;
  options.username = access.username;
  options.password = access.password;
  options.database = access.database;
  options.connect_timeout = to_milliseconds(access.connect_seconds, "connect_seconds");
  options.silence = to_milliseconds(access.silence_seconds, "silence_seconds");
  options.most_reads = access.most_reads;
  if (access.database < 0) {
    hotrow::fail(Code::kInvalidArgument, "database: %d; at least 0", access.database);
  }
  if (access.most_reads < 1) hotrow::fail(Code::kInvalidArgument, "most_reads: 0; at least 1");
  return options;
}

}  // namespace

int hr_redis_reader_open(const char* record, const char* topology, const hr_redis_access* access,
                         hr_reader** reader) {
  return guarded([&] {
    *reader = new hr_reader{std::make_shared<hotrow::RedisReader>(hotrow::parse_generation(record),
                                                                  topology, to_options(*access))};
  });
}

int hr_redis_reader_set_topology(const hr_reader* reader, const char* topology) {
  return guarded([&] { to_redis(reader).set_topology(topology); });
}

int hr_redis_reader_set_fence(const hr_reader* reader, uint64_t oldest) {
  return guarded([&] { to_redis(reader).set_fence(oldest); });
}

int hr_redis_reader_statistics(const hr_reader* reader, hr_take_text take, void* context) {
  return guarded([&] {
    const std::string text = to_redis(reader).statistics();
    take(context, text.data(), text.size());
  });
}
