// Which node has which virtual shard, as far as this process knows.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/redis/node.h"
#include "core/redis/topology.h"
#include "core/store/store_layout.h"

namespace hotrow {

// What a read works with: it does not change under it.
struct RedisRouteMap {
  bool cluster = false;
  std::vector<std::shared_ptr<RedisNode>> of_shard;  // (V); null: nobody has it
};

// Safe from several threads.
class RedisRoutes {
 public:
  // names, options: live as long as this.
  RedisRoutes(const StoreNames& names, const RedisOptions& options)
      : names_(names), options_(options) {}

  // Nodes that stay, and are reached as before, keep their connections.
  void set_topology(const RedisTopology& topology);
  std::shared_ptr<const RedisRouteMap> map() const;
  // The node of an address, made if it is new; reached as the topology says.
  std::shared_ptr<RedisNode> node(const RedisAddress& address);
  // A node said that a shard moved.
  void move(size_t shard, const std::shared_ptr<RedisNode>& to);
  std::vector<std::shared_ptr<RedisNode>> nodes() const;

 private:
  std::shared_ptr<RedisNode> node_locked(const RedisAddress& address);

  const StoreNames& names_;
  const RedisOptions& options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const RedisRouteMap> map_;
  std::map<std::string, std::shared_ptr<RedisNode>> nodes_;  // by address
  RedisAddress relay_;
};

}  // namespace hotrow
