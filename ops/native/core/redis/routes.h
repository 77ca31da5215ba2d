// The node of each virtual shard, as far as this process knows.
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

// A read's map; it does not change during the read.
struct RedisRouteMap {
  bool cluster = false;
  std::vector<std::shared_ptr<RedisNode>> of_shard;  // (V); null: no node has the shard
};

// Safe from several threads.
class RedisRoutes {
 public:
  // names, options: live as long as this.
  RedisRoutes(const StoreNames& names, const RedisOptions& options)
      : names_(names), options_(options) {}

  // Nodes that stay keep their connections if they are reached as before. Fails with
  // InvalidArgument if the files of TLS cannot be used.
  void set_topology(const RedisTopology& topology);
  std::shared_ptr<const RedisRouteMap> map() const;
  // The node of an address, created if it is new.
  std::shared_ptr<RedisNode> node(const RedisAddress& address);
  // A node replied that a shard moved.
  void move(size_t shard, const std::shared_ptr<RedisNode>& to);
  std::vector<std::shared_ptr<RedisNode>> nodes() const;

 private:
  // The caller holds mutex_.
  std::shared_ptr<RedisNode> node_locked(const RedisAddress& address);
  std::shared_ptr<RedisTls> tls_of(const RedisTopology& topology) const;

  const StoreNames& names_;
  const RedisOptions& options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const RedisRouteMap> map_;
  std::map<std::string, std::shared_ptr<RedisNode>> nodes_;  // by address
  std::shared_ptr<RedisTls> tls_;                            // null: plain text
};

}  // namespace hotrow
