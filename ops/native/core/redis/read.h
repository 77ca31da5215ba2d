// One read of a RedisReader: sends commands to all nodes at once and handles their replies.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/redis/lane.h"
#include "core/redis/routes.h"
#include "core/redis/statistics.h"
#include "core/store/row_reader.h"

namespace hotrow {

// The lowest watermark of a shard whose rows may be read.
struct RedisFence {
  std::atomic<RowVersion> version{0};  // 0: none
  std::atomic<uint64_t> round{1};      // a new one: all watermarks are read again
};

// What all reads of a reader share.
struct RedisReading {
  const StoreNames* names;
  RedisRoutes* routes;
  const RedisOptions* options;
  RedisStatistics* statistics;
  RedisFence* fence;
  std::string generation;  // for messages
};

class RedisRead {
 public:
  RedisRead(const RedisReading& shared, PageRequests* pages, Deadline deadline);
  ~RedisRead();
  // Reads the keys of all pages; at the deadline the keys that are left fail.
  ReadFailure run();

 private:
  struct Later {
    Deadline at;
    RedisCommand command;
    std::shared_ptr<RedisNode> node;  // that gets it later
    std::string why;
  };

  void job();
  void ask(const RedisCommand& command, const std::shared_ptr<RedisNode>& node);
  void ask_owner(const RedisCommand& command);
  RedisLane* lane_of(const std::shared_ptr<RedisNode>& node);
  void open(RedisLane* lane);
  void flush(RedisLane* lane, bool always);
  void receive(RedisLane* lane);
  void broken(RedisLane* lane, const std::string& why);
  void answered(RedisLane* lane, const RedisCommand& command, const std::string& error);
  void marked(RedisLane* lane, uint32_t shard);
  void refused(RedisLane* lane, RedisCommand command, const std::string& error);
  void pause(RedisLane* lane, RedisCommand command, const std::string& error);
  void redirect(RedisLane* lane, RedisCommand command, const std::string& error);
  void disconnected(RedisLane* lane, const std::string& why);
  void abandon(RedisLane* lane, Code code, const std::string& why, bool certain);
  void give_up(const RedisCommand& command, Code code, const std::string& why);
  void end_page(uint32_t shard);
  void settle(uint32_t shard, ReadState state);
  void note(Code code, const std::string& why);
  Deadline patience(const RedisLane& lane) const;
  void wait();
  void expire();

  const RedisReading& shared_;
  PageRequests* pages_;
  const Deadline deadline_;
  Deadline now_;
  std::shared_ptr<const RedisRouteMap> map_;
  RedisReadJob job_;
  std::vector<uint32_t> open_pages_;     // of each shard: not answered yet
  std::vector<uint32_t> missing_pages_;  // of each shard: absent; its marker must be read
  std::vector<uint32_t> missing_;        // the absent pages
  std::vector<std::unique_ptr<RedisLane>> lanes_;
  std::vector<Later> later_;
  ReadFailure failure_;
};

}  // namespace hotrow
